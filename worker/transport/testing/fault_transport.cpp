#include "worker/transport/testing/fault_transport.h"

#include <utility>

#include "common/status.h"

namespace stagecoach::worker {

void FaultTransport::FailSend(Channel channel, uint64_t n_frames, absl::Status status) {
  MutexLock lock(mutex_);
  channels_[static_cast<size_t>(channel)].send = Fault{n_frames, std::move(status)};
}

void FaultTransport::FailReceive(Channel channel, uint64_t n_frames, absl::Status status) {
  MutexLock lock(mutex_);
  channels_[static_cast<size_t>(channel)].receive = Fault{n_frames, std::move(status)};
}

void FaultTransport::Hold(Channel channel) {
  MutexLock lock(mutex_);
  channels_[static_cast<size_t>(channel)].hold = true;
}

void FaultTransport::Release(Channel channel) {
  MutexLock lock(mutex_);
  channels_[static_cast<size_t>(channel)].hold = false;
  changed_.notify_all();
}

void FaultTransport::AwaitHeld(Channel channel) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return channels_[static_cast<size_t>(channel)].held;
  });
}

void FaultTransport::AwaitProcessed(Channel channel, uint64_t n_frames) {
  MutexLock lock(mutex_);
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return channels_[static_cast<size_t>(channel)].n_processed >= n_frames;
  });
}

absl::Status FaultTransport::Due(std::optional<Fault> ChannelState::* fault, Channel channel) {
  absl::Status status;
  {
    MutexLock lock(mutex_);
    std::optional<Fault>& armed = channels_[static_cast<size_t>(channel)].*fault;
    if (!armed.has_value()) return absl::OkStatus();
    if (armed->n_frames > 0) {
      --armed->n_frames;
      return absl::OkStatus();
    }
    status = std::move(armed->status);
    armed.reset();
  }
  inner_->Close(status);
  return status;
}

absl::Status FaultTransport::Send(Channel channel, uint64_t step, std::string payload) {
  SC_RETURN_IF_ERROR(Due(&ChannelState::send, channel));
  return inner_->Send(channel, step, std::move(payload));
}

absl::StatusOr<Message> FaultTransport::Receive(Channel channel) {
  SC_RETURN_IF_ERROR(Due(&ChannelState::receive, channel));
  MutexLock lock(mutex_);
  ChannelState& state = channels_[static_cast<size_t>(channel)];
  state.n_processed = state.n_received;
  changed_.notify_all();
  lock.unlock();
  absl::StatusOr<Message> message = inner_->Receive(channel);
  lock.lock();
  if (message.ok()) ++state.n_received;
  state.held = state.hold;
  changed_.notify_all();
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !state.hold; });
  state.held = false;
  return message;
}

void FaultTransport::Close(absl::Status reason) {
  inner_->Close(std::move(reason));
  MutexLock lock(mutex_);
  for (ChannelState& state : channels_) state.hold = false;
  changed_.notify_all();
}

}  // namespace stagecoach::worker
