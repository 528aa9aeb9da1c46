// The transport for stages on GPUs: metadata, hidden states and tokens pass from device to device
// through NCCL. The host transport below it (gRPC) stays connected: it reports the death of a
// neighbour, which NCCL does not, and it carries everything if a stage cannot use NCCL.
//
// Any failure ends the epoch: all links of the stage are aborted together in the background, and
// every call returns the reason. A deadline on pending messages also ends it, for neighbours that
// are alive but make no progress.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "common/mutex.h"
#include "worker/transport/nccl/nccl_api.h"
#include "worker/transport/nccl/nccl_epoch.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

struct NcclTransportOptions {
  int32_t device = 0;  // CUDA's device number
  cudaStream_t compute = nullptr;
  std::function<absl::StatusOr<const NcclApi*>()> load_api;
  std::chrono::milliseconds join_timeout{60'000};
  // Longer than any step of a stage. If a due message makes no progress for a few times as long
  // (StallLimit), the neighbour is considered stalled.
  std::chrono::milliseconds longest_step{20'000};
  // Memory reserved from Prepare to Join, so that the KV cache does not use it: the measured need
  // of communicators. Most of it is allocated once per process for the first communicators and
  // never freed.
  size_t reserved_bytes = size_t{512} << 20;
  size_t reserved_again_bytes = size_t{64} << 20;
  // For tests: a seed for random delays before messages (0: none), and NaN in free slots.
  uint64_t disturbance_seed = 0;
  bool poison = false;
  std::function<void()> on_progress_checked;  // called after each check of the watchdog
};

class NcclTransport final : public Transport, private DeviceChannels {
 public:
  // `host` and the compute stream must outlive the transport.
  NcclTransport(NcclTransportOptions options, Transport* host);
  ~NcclTransport() override;

  bool links_devices() const override { return true; }
  void WarmUp() override;
  absl::Status Prepare(const LinkSizes& sizes) override;
  absl::StatusOr<LinkOffer> OfferLinks(uint64_t epoch, int32_t stage, int32_t n_stages) override;
  absl::Status Join(const Neighbours& neighbours) override;
  absl::Status Send(Channel channel, uint64_t step, std::string payload) override;
  absl::StatusOr<Message> Receive(Channel channel) override;
  DeviceChannels* device() override;
  std::string Description() const override;
  ChannelCounters Counters(Channel channel) const override;
  void Close(absl::Status reason) override;

 private:
  absl::Status Expect(uint64_t step, size_t hidden_bytes, bool has_tokens) override;
  absl::Status Stamp(uint64_t step, StepPoint point) override;
  absl::StatusOr<bool> ReceiveHidden(uint64_t step, void* hidden, size_t bytes) override;
  absl::Status ReceiveTokens(uint64_t step, int32_t* sampled) override;
  absl::Status SendHidden(uint64_t step, const void* hidden, size_t bytes) override;
  absl::Status SendTokens(uint64_t step, const int32_t* sampled) override;
  absl::StatusOr<StepTimes> Finish(uint64_t step) override;

  absl::Status ConnectAlone();
  absl::Status ConnectLinks(const Neighbours& neighbours);
  void EndEpoch();
  void WatchProgress();
  void Report(const Neighbours& place) const;
  absl::Status Closed() const;
  // Returns the reason why the epoch ended, if it has ended, instead of a link's error about it.
  absl::Status OrReason(absl::Status status);

  const NcclTransportOptions options_;
  Transport* const host_;
  LinkMemory memory_;
  kernels::Buffer reserve_;       // memory for NCCL, held from Prepare to Join
  bool nccl_has_memory_ = false;  // memory that NCCL keeps

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  // Set and reset under mutex_, only in Join, while nobody uses the links.
  std::unique_ptr<NcclEpoch> epoch_;
  std::string description_ ABSL_GUARDED_BY(mutex_) = "host";
  std::thread host_watch_, progress_watch_;
};

}  // namespace stagecoach::worker
