#include "worker/transport/nccl/nccl_link.h"

#include <fmt/format.h>

#include <thread>
#include <utility>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

using kernels::cuda::ToStatus;
using std::chrono::milliseconds;

constexpr std::chrono::microseconds kSetupPoll(200);
constexpr milliseconds kAbortGrace(200);

}  // namespace

absl::StatusOr<std::unique_ptr<NcclLink>> NcclLink::Make(Options options) {
  std::unique_ptr<NcclLink> link(new NcclLink(std::move(options)));
  SC_RETURN_IF_ERROR(ToStatus(cudaSetDevice(link->options_.device), "the GPU cannot be used"));
  // High priority: the single block of a message runs ahead of the blocks of the next step's
  // layers.
  int least = 0, greatest = 0;
  cudaDeviceGetStreamPriorityRange(&least, &greatest);
  SC_RETURN_IF_ERROR(ToStatus(
      cudaStreamCreateWithPriority(&link->stream_, cudaStreamNonBlocking, greatest), "no stream"));
  SC_ASSIGN_OR_RETURN(link->begun_, CudaEvent::Make(CudaEvent::Use::kTime));
  SC_ASSIGN_OR_RETURN(link->done_, CudaEvent::Make(CudaEvent::Use::kTime));
  return link;
}

NcclLink::~NcclLink() {
  cudaSetDevice(options_.device);
  Abort();
  if (stream_ != nullptr) {
    cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
}

absl::Status NcclLink::Aborted() const {
  return absl::AbortedError(fmt::format("{}: the link has ended", options_.name));
}

absl::Status NcclLink::Settle(NcclResult result, Clock::time_point deadline, const char* what) {
  const Clock::time_point begun = Clock::now();
  while (result == kNcclInProgress) {
    if (aborted_) return Aborted();
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(
          fmt::format("{}: NCCL did not {} within {} ms", options_.name, what,
                      std::chrono::duration_cast<milliseconds>(now - begun).count()));
    }
    // A call for a message settles in microseconds; a connection takes longer.
    if (now - begun < milliseconds(1)) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kSetupPoll);
    }
    if (const NcclResult asked = options_.api->comm_get_async_error(comm_, &result);
        asked != kNcclSuccess) {
      result = asked;
    }
  }
  if (result == kNcclSuccess) return absl::OkStatus();
  if (aborted_) return Aborted();
  return absl::UnavailableError(fmt::format("{}: NCCL cannot {}: {} ({})", options_.name, what,
                                            options_.api->get_error_string(result),
                                            options_.api->get_last_error(comm_)));
}

absl::Status NcclLink::Connect(Clock::time_point deadline) {
  cudaSetDevice(options_.device);
  const std::lock_guard lock(calls_);
  if (aborted_) return Aborted();
  NcclConfig config;
  NcclComm comm = nullptr;
  const NcclResult result = options_.api->comm_init_rank_config(
      &comm, options_.n_ranks, options_.id, static_cast<int>(options_.role), &config);
  comm_ = comm;
  if (aborted_) AbortCommunicator();  // Abort may have run before comm_ was set
  return Settle(result, deadline, "connect");
}

absl::StatusOr<double> NcclLink::Exchange(void* data, size_t bytes, int n,
                                          Clock::time_point deadline) {
  cudaSetDevice(options_.device);
  for (int i = 0; i < n; ++i) {
    SC_RETURN_IF_ERROR(begun_.Record(stream_));
    SC_RETURN_IF_ERROR(is_sender() ? Send(data, bytes, deadline) : Receive(data, bytes, deadline));
  }
  SC_RETURN_IF_ERROR(done_.Record(stream_));
  while (!done_.IsReached()) {
    if (aborted_) return Aborted();
    if (Clock::now() >= deadline) {
      return absl::DeadlineExceededError(
          fmt::format("{}: the peer did not take part in the first exchange", options_.name));
    }
    std::this_thread::sleep_for(kSetupPoll);
  }
  return done_.MsSince(begun_);
}

absl::Status NcclLink::Send(const void* data, size_t bytes, Clock::time_point deadline) {
  SC_RETURN_IF_ERROR(ToStatus(disturbance_.Delay({.handle = stream_}), "the GPU failed"));
  const std::lock_guard lock(calls_);
  if (aborted_) return Aborted();
  const NcclResult result =
      options_.api->send(data, bytes, kNcclInt8, static_cast<int>(Role::kReceiver), comm_, stream_);
  return Settle(result, deadline, "send");
}

absl::Status NcclLink::Receive(void* data, size_t bytes, Clock::time_point deadline) {
  SC_RETURN_IF_ERROR(ToStatus(disturbance_.Delay({.handle = stream_}), "the GPU failed"));
  const std::lock_guard lock(calls_);
  if (aborted_) return Aborted();
  const NcclResult result =
      options_.api->recv(data, bytes, kNcclInt8, static_cast<int>(Role::kSender), comm_, stream_);
  return Settle(result, deadline, "receive");
}

void NcclLink::Abort() {
  aborted_ = true;
  if (abort_begun_.exchange(true)) return;
  cudaSetDevice(options_.device);
  const std::unique_lock lock(calls_, kAbortGrace);
  AbortCommunicator();
}

void NcclLink::AbortCommunicator() {
  if (comm_ == nullptr || comm_aborted_.exchange(true)) return;
  options_.api->comm_abort(comm_);
}

}  // namespace stagecoach::worker
