// One channel between two neighbours: a communicator of two ranks, used one way, and a stream of
// its own.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/disturbance.h"
#include "worker/transport/nccl/cuda_event.h"
#include "worker/transport/nccl/nccl_api.h"

namespace stagecoach::worker {

class NcclLink {
 public:
  enum class Role { kSender = 0, kReceiver = 1 };  // and rank
  struct Options {
    const NcclApi* api = nullptr;
    int32_t device = 0;
    std::string name;  // "hidden states from stage 0 to stage 1"
    NcclUniqueId id{};
    Role role = Role::kSender;
    uint64_t disturbance_seed = 0;  // not 0: delays before messages, for tests
  };
  using Clock = std::chrono::steady_clock;

  static absl::StatusOr<std::unique_ptr<NcclLink>> Make(Options options);
  // Aborts if nobody did. The stream's work has ended then.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Waits for the peer. DEADLINE_EXCEEDED names the link.
  absl::Status Connect(Clock::time_point deadline);
  // n messages of `bytes` to the peer's Exchange of as many, waited for: NCCL connects with the
  // first one. The value: how long the last one took on the device, in ms; of several, the peer is
  // there by then.
  absl::StatusOr<double> Exchange(void* data, size_t bytes, int n, Clock::time_point deadline);

  // Queue the message on stream(); one thread a link. ABORTED after Abort. Where launches are
  // blocking they wait for the peer, who may have nothing to say for hours: what is due and does
  // not come is the caller's to find.
  absl::Status Send(const void* data, size_t bytes,
                    Clock::time_point deadline = Clock::time_point::max());
  absl::Status Receive(void* data, size_t bytes,
                       Clock::time_point deadline = Clock::time_point::max());

  // ABORTED after Abort.
  absl::Status Alive() const { return aborted_ ? Aborted() : absl::OkStatus(); }
  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return options_.name; }
  bool is_sender() const { return options_.role == Role::kSender; }

  // Ends what the link has on the GPU, with whatever came; stream() works on without the peer.
  // Takes half a second or more: from a thread of its own, at the same time as the others of the
  // device, as each may wait for the others' work. Any thread; again: nothing.
  void Abort();

 private:
  explicit NcclLink(Options options)
      : options_(std::move(options)), disturbance_(options_.disturbance_seed) {}
  // Until the call that returned `result` is done. REQUIRES: calls_ held.
  absl::Status Settle(NcclResult result, Clock::time_point deadline, const char* what);
  absl::Status Aborted() const;
  void AbortCommunicator();  // once

  const Options options_;
  kernels::cuda::Disturbance disturbance_;  // of the thread that sends or receives
  cudaStream_t stream_ = nullptr;
  CudaEvent begun_, done_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> abort_begun_{false};
  // Held by calls; Abort waits for it only a while, as a call may wait for the peer where launches
  // are blocking.
  std::timed_mutex calls_;
  std::atomic<NcclComm> comm_{nullptr};
  std::atomic<bool> comm_aborted_{false};
};

}  // namespace stagecoach::worker
