#include "worker/transport/testing/memory_transport.h"

#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/closable_queue.h"
#include "common/mutex.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

// State shared by all stages.
struct Hub {
  struct Stage {
    explicit Stage(size_t queue_frames)
        : inbox{ClosableQueue<Message>(queue_frames), ClosableQueue<Message>(queue_frames),
                ClosableQueue<Message>(queue_frames)} {}

    std::array<ClosableQueue<Message>, kChannels> inbox;
    std::array<ChannelCounters, kChannels> counters;  // the rest: guarded by Hub::mutex
    std::optional<uint64_t> epoch;                    // set while joined
    absl::Status closed = absl::FailedPreconditionError("the stage has not joined a pipeline");
  };

  Mutex mutex;
  CondVar changed;
  std::vector<std::unique_ptr<Stage>> stages;  // never resized once a stage is there
};

class MemoryTransport final : public Transport {
 public:
  MemoryTransport(std::shared_ptr<Hub> hub, size_t stage, const MemoryTransportOptions& options)
      : hub_(std::move(hub)), stage_(stage), self_(*hub_->stages[stage]), options_(options) {}

  ~MemoryTransport() override { Close(absl::CancelledError("the stage has ended")); }

  absl::Status Join(const Neighbours& neighbours) override {
    Close(absl::AbortedError("the stage is joining again"));
    MutexLock lock(hub_->mutex);
    for (auto& queue : self_.inbox) queue.Reopen();
    self_.counters = {};
    self_.epoch = neighbours.epoch;
    self_.closed = absl::OkStatus();
    hub_->changed.notify_all();
    if (options_.on_joining) options_.on_joining();
    size_t missing = 0;
    const auto settled = [&] {
      missing = 0;
      while (missing < hub_->stages.size() && hub_->stages[missing]->epoch == neighbours.epoch) {
        ++missing;
      }
      return missing == hub_->stages.size() || !self_.closed.ok();
    };
    if (!hub_->changed.wait_for(lock, options_.join_timeout, settled)) {
      absl::Status status = absl::DeadlineExceededError(
          absl::StrCat("stage ", missing, " has not joined epoch ", neighbours.epoch));
      lock.unlock();
      Close(status);
      return status;
    }
    return self_.closed;
  }

  absl::Status Send(Channel channel, uint64_t step, std::string payload) override {
    SC_RETURN_IF_ERROR(Closed());
    const size_t peer = channel == Channel::kTokens ? 0 : stage_ + 1;
    SC_CHECK(peer < hub_->stages.size());
    const size_t n_bytes = payload.size();
    const size_t c = static_cast<size_t>(channel);
    const absl::Status pushed =
        hub_->stages[peer]->inbox[c].Push(Message{step, std::move(payload)});
    SC_RETURN_IF_ERROR(Closed());
    SC_RETURN_IF_ERROR(pushed);
    MutexLock lock(hub_->mutex);
    ++self_.counters[c].sent_frames;
    self_.counters[c].sent_bytes += n_bytes;
    return absl::OkStatus();
  }

  absl::StatusOr<Message> Receive(Channel channel) override {
    SC_RETURN_IF_ERROR(Closed());
    const size_t c = static_cast<size_t>(channel);
    SC_ASSIGN_OR_RETURN(Message message, self_.inbox[c].Pop());
    MutexLock lock(hub_->mutex);
    ++self_.counters[c].received_frames;
    self_.counters[c].received_bytes += message.payload.size();
    return message;
  }

  ChannelCounters Counters(Channel channel) const override {
    MutexLock lock(hub_->mutex);
    return self_.counters[static_cast<size_t>(channel)];
  }

  void Close(absl::Status reason) override {
    MutexLock lock(hub_->mutex);
    if (!self_.closed.ok()) return;
    const absl::Status lost =
        absl::UnavailableError(absl::StrCat("stage ", stage_, " closed: ", reason.ToString()));
    const std::optional<uint64_t> epoch = self_.epoch;
    for (auto& stage : hub_->stages) {
      if (stage->epoch != epoch || !stage->closed.ok()) continue;
      stage->closed = stage.get() == &self_ ? reason : lost;
      stage->epoch.reset();
      for (auto& queue : stage->inbox) queue.Close(stage->closed);
    }
    hub_->changed.notify_all();
  }

 private:
  absl::Status Closed() const {
    MutexLock lock(hub_->mutex);
    return self_.closed;
  }

  const std::shared_ptr<Hub> hub_;
  const size_t stage_;
  Hub::Stage& self_;
  const MemoryTransportOptions options_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> MakeMemoryTransports(
    int32_t n_stages, const MemoryTransportOptions& options) {
  auto hub = std::make_shared<Hub>();
  for (int32_t i = 0; i < n_stages; ++i) {
    hub->stages.push_back(std::make_unique<Hub::Stage>(options.queue_frames));
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (int32_t i = 0; i < n_stages; ++i) {
    transports.push_back(std::make_unique<MemoryTransport>(hub, i, options));
  }
  return transports;
}

}  // namespace stagecoach::worker
