// One channel between two neighbours: an NCCL communicator of two ranks, used in one direction, and
// its own stream.
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
  enum class Role { kSender = 0, kReceiver = 1 };  // the value is the rank
  struct Options {
    const NcclApi* api = nullptr;
    int32_t device = 0;
    std::string name;  // "hidden states from stage 0 to stage 1"
    NcclUniqueId id{};
    Role role = Role::kSender;
    int n_ranks = 2;                // 1: no peer, only for NCCL's first connection in a process
    uint64_t disturbance_seed = 0;  // not 0: random delays before messages, for tests
  };
  using Clock = std::chrono::steady_clock;

  static absl::StatusOr<std::unique_ptr<NcclLink>> Make(Options options);
  // Aborts the link if nobody has. Afterwards the stream's work has ended.
  ~NcclLink();
  NcclLink(const NcclLink&) = delete;
  NcclLink& operator=(const NcclLink&) = delete;

  // Waits for the peer. DEADLINE_EXCEEDED names the link.
  absl::Status Connect(Clock::time_point deadline);
  // Sends n messages of `bytes` bytes to the peer's Exchange with the same n, or receives them, and
  // waits for them. NCCL connects with the first message. Returns the time of the last message on
  // the device, in ms. If n > 1, it does not include waiting for the peer, which is there by then.
  absl::StatusOr<double> Exchange(void* data, size_t bytes, int n, Clock::time_point deadline);

  // Queue a message on stream(). Use from one thread per link. ABORTED after Abort. With blocking
  // launches the call waits for the peer, which may send nothing for hours; the caller must detect
  // a message that is due and does not come.
  absl::Status Send(const void* data, size_t bytes,
                    Clock::time_point deadline = Clock::time_point::max());
  absl::Status Receive(void* data, size_t bytes,
                       Clock::time_point deadline = Clock::time_point::max());

  // ABORTED after Abort.
  absl::Status Alive() const { return aborted_ ? Aborted() : absl::OkStatus(); }
  cudaStream_t stream() const { return stream_; }
  const std::string& name() const { return options_.name; }
  bool is_sender() const { return options_.role == Role::kSender; }

  // Ends the link's work on the GPU with incomplete data; stream() then continues without the peer.
  // Takes half a second or more. Call it from a separate thread, and for all links of the device at
  // the same time, because each may wait for the others' work. May be called from any thread;
  // further calls do nothing.
  void Abort();

 private:
  explicit NcclLink(Options options)
      : options_(std::move(options)), disturbance_(options_.disturbance_seed) {}
  // Waits until the call that returned `result` is done. REQUIRES: calls_ held.
  absl::Status Settle(NcclResult result, Clock::time_point deadline, const char* what);
  absl::Status Aborted() const;
  void AbortCommunicator();  // at most once

  const Options options_;
  kernels::cuda::Disturbance disturbance_;  // used by the thread that sends or receives
  cudaStream_t stream_ = nullptr;
  CudaEvent begun_, done_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> abort_begun_{false};
  // Held during NCCL calls. Abort waits for it only for a limited time, because with blocking
  // launches a call may wait for the peer.
  std::timed_mutex calls_;
  std::atomic<NcclComm> comm_{nullptr};
  std::atomic<bool> comm_aborted_{false};
};

}  // namespace stagecoach::worker
