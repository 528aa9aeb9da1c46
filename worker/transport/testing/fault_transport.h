// For tests: wraps a real transport and injects faults.
#pragma once

#include <array>
#include <memory>
#include <optional>

#include "common/mutex.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

class FaultTransport final : public Transport {
 public:
  explicit FaultTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  // After `n_frames` more frames, the channel's next Send (Receive) closes the epoch with `status`.
  void FailSend(Channel channel, uint64_t n_frames, absl::Status status);
  void FailReceive(Channel channel, uint64_t n_frames, absl::Status status);

  // While a channel is held, Receive keeps the frame that it has received.
  void Hold(Channel channel);
  void Release(Channel channel);
  // Waits until a Receive is held.
  void AwaitHeld(Channel channel);
  // Waits until the stage has processed `n_frames` frames: it has received them and asks for more.
  void AwaitProcessed(Channel channel, uint64_t n_frames);

  absl::Status Join(const Neighbours& neighbours) override { return inner_->Join(neighbours); }
  absl::Status Send(Channel channel, uint64_t step, std::string payload) override;
  absl::StatusOr<Message> Receive(Channel channel) override;
  DeviceChannels* device() override { return inner_->device(); }
  ChannelCounters Counters(Channel channel) const override { return inner_->Counters(channel); }
  void Close(absl::Status reason) override;

 private:
  struct Fault {
    uint64_t n_frames = 0;  // that still pass
    absl::Status status;
  };
  struct ChannelState {
    std::optional<Fault> send, receive;
    bool hold = false;
    bool held = false;  // a Receive waits
    uint64_t n_received = 0, n_processed = 0;
  };

  absl::Status Due(std::optional<Fault> ChannelState::* fault, Channel channel);

  const std::unique_ptr<Transport> inner_;
  Mutex mutex_;
  CondVar changed_;
  std::array<ChannelState, kChannels> channels_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::worker
