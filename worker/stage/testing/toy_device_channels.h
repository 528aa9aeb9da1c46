// For tests: device channels in host memory. Their work is done when a call returns. A stage sees
// them like NCCL's channels. They wrap a transport that carries everything else.
#pragma once

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "common/closable_queue.h"
#include "common/status.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

class ToyDeviceTransport final : public Transport, private DeviceChannels {
 public:
  struct Queue {
    static constexpr size_t kFrames = 256;  // one per step that may be ahead
    ClosableQueue<Message> messages{kFrames};
  };
  // hidden_in, tokens_in: this stage's queues, or null. hidden_out, tokens_out: the neighbour's.
  struct Queues {
    std::shared_ptr<Queue> hidden_in, hidden_out, tokens_in, tokens_out;
  };

  ToyDeviceTransport(std::unique_ptr<Transport> host, Queues queues, size_t token_bytes)
      : host_(std::move(host)), queues_(std::move(queues)), token_bytes_(token_bytes) {}

  absl::Status Join(const Neighbours& neighbours) override { return host_->Join(neighbours); }
  absl::Status Send(Channel channel, uint64_t step, std::string payload) override {
    SC_CHECK(channel == Channel::kMetadata);
    return host_->Send(channel, step, std::move(payload));
  }
  absl::StatusOr<Message> Receive(Channel channel) override { return host_->Receive(channel); }
  ChannelCounters Counters(Channel channel) const override {
    if (channel == Channel::kHidden) return {.sent_frames = n_hidden_sent_};
    return host_->Counters(channel);
  }
  DeviceChannels* device() override { return this; }
  void Close(absl::Status reason) override {
    for (const auto& queue :
         {queues_.hidden_in, queues_.hidden_out, queues_.tokens_in, queues_.tokens_out}) {
      if (queue != nullptr) queue->messages.Close(reason);
    }
    host_->Close(std::move(reason));
  }

 private:
  absl::Status Expect(uint64_t, size_t hidden_bytes, bool has_tokens) override {
    // A message cannot come without its queue.
    if ((hidden_bytes > 0 && queues_.hidden_in == nullptr) ||
        (has_tokens && queues_.tokens_in == nullptr)) {
      return absl::InternalError("a message is expected that nobody sends");
    }
    return absl::OkStatus();
  }
  absl::Status Stamp(uint64_t, StepPoint) override { return absl::OkStatus(); }
  absl::StatusOr<bool> ReceiveHidden(uint64_t step, void* hidden, size_t bytes) override {
    SC_ASSIGN_OR_RETURN(const Message message, queues_.hidden_in->messages.Pop());
    if (message.step != step || message.payload.size() != bytes) {
      return absl::InternalError("other hidden states came");
    }
    std::memcpy(hidden, message.payload.data(), bytes);
    return true;
  }
  absl::Status ReceiveTokens(uint64_t step, int32_t* sampled) override {
    while (latest_.step < step) {
      SC_ASSIGN_OR_RETURN(latest_, queues_.tokens_in->messages.Pop());
    }
    std::memcpy(sampled, latest_.payload.data(), token_bytes_);
    return absl::OkStatus();
  }
  absl::Status SendHidden(uint64_t step, const void* hidden, size_t bytes) override {
    ++n_hidden_sent_;
    return Push(*queues_.hidden_out, step, hidden, bytes);
  }
  absl::Status SendTokens(uint64_t step, const int32_t* sampled) override {
    return Push(*queues_.tokens_out, step, sampled, token_bytes_);
  }
  absl::StatusOr<StepTimes> Finish(uint64_t) override {
    return StepTimes{.wait_input_ms = 1, .compute_ms = 2, .wait_send_ms = 3};
  }

  static absl::Status Push(Queue& queue, uint64_t step, const void* data, size_t bytes) {
    return queue.messages.Push({step, std::string(static_cast<const char*>(data), bytes)});
  }

  const std::unique_ptr<Transport> host_;
  const Queues queues_;
  const size_t token_bytes_;
  Message latest_;  // compute thread
  std::atomic<uint64_t> n_hidden_sent_ = 0;
};

}  // namespace stagecoach::worker
