// Stages on GPUs: metadata, hidden states and tokens pass from device to device by NCCL. The host
// transport below it (gRPC) stays connected: it tells of a neighbour's death, which NCCL does not,
// and it carries everything where a stage cannot use NCCL.
//
// A failure anywhere ends the epoch: all of the stage's links are aborted together, in the
// background, and every call returns the reason. So does a deadline on what is under way, for
// neighbours that live but stand still.
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
  int32_t device = 0;  // by CUDA's count
  cudaStream_t compute = nullptr;
  std::function<absl::StatusOr<const NcclApi*>()> load_api;
  std::chrono::milliseconds join_timeout{60'000};
  // Longer than any step takes a stage. Without progress for as long as a few (StallLimit), while a
  // message is due, a neighbour gets nowhere.
  std::chrono::milliseconds longest_step{20'000};
  // Taken from Prepare to Join, so that nobody plans with it: what communicators were seen to take
  // of a GPU. Most of it a process takes for its first ones and never gives back.
  size_t reserved_bytes = size_t{512} << 20;
  size_t reserved_again_bytes = size_t{64} << 20;
  // For tests: 0 or delays before messages; NaN in slots that are free.
  uint64_t disturbance_seed = 0;
  bool poison = false;
  std::function<void()> on_progress_checked;  // after each look of the watchdog
};

class NcclTransport final : public Transport, private DeviceChannels {
 public:
  // `host` and the compute stream outlive it.
  NcclTransport(NcclTransportOptions options, Transport* host);
  ~NcclTransport() override;

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
  absl::StatusOr<bool> ReceiveHidden(uint64_t step, float* hidden, size_t bytes) override;
  absl::Status ReceiveTokens(uint64_t step, int32_t* sampled) override;
  absl::Status SendHidden(uint64_t step, const float* hidden, size_t bytes) override;
  absl::Status SendTokens(uint64_t step, const int32_t* sampled) override;
  absl::StatusOr<StepTimes> Finish(uint64_t step) override;

  absl::Status ConnectLinks(const Neighbours& neighbours);
  void EndEpoch();
  void WatchProgress();
  void Report(const Neighbours& place) const;
  absl::Status Closed() const;
  // The reason why the epoch ended rather than what a link says of its end.
  absl::Status OrReason(absl::Status status);

  const NcclTransportOptions options_;
  Transport* const host_;
  LinkMemory memory_;
  kernels::Buffer reserve_;       // from Prepare to Join: what NCCL will take
  bool nccl_has_memory_ = false;  // that it keeps

  mutable Mutex mutex_;
  CondVar changed_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  // Set and reset under mutex_, in Join alone, while nobody uses the links.
  std::unique_ptr<NcclEpoch> epoch_;
  std::string description_ ABSL_GUARDED_BY(mutex_) = "host";
  std::thread host_watch_, progress_watch_;
};

}  // namespace stagecoach::worker
