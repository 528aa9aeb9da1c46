#include "router/frontend/http/stream_relay.h"

#include <utility>

#include "router/frontend/http/api_error.h"
#include "router/frontend/http/event_stream.h"
#include "router/frontend/stream_pump.h"

namespace stagecoach::router::http {
namespace {

// A late client gets missed output in pieces of this size.
constexpr size_t kPieceBytes = 8 << 10;

// Sends a stream's bytes, which are server-sent events.
class EventPump final : public StreamPump {
 public:
  EventPump(std::unique_ptr<StreamReader> reader, std::shared_ptr<Exchange> exchange,
            WorkQueue* lane)
      : StreamPump(std::move(reader), kPieceBytes, lane), exchange_(std::move(exchange)) {}

 private:
  void OnAccepted() override { exchange_->StartStream(EventStreamHead(), /*has_ids=*/true); }
  bool Write(std::string data) override {
    return exchange_->Write(std::move(data),
                            [self = shared_from_this()](bool ok) { self->WriteDone(ok); });
  }
  void End(const absl::Status& status) override {
    if (status.ok()) return exchange_->EndStream("");
    // Metrics would count an error that nobody gets.
    if (exchange_->is_gone()) return;
    exchange_->FailStream(ErrorResponse(status), ErrorEvents(status));
  }

  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

void RelayStream(std::unique_ptr<StreamReader> reader, const std::shared_ptr<Exchange>& exchange,
                 WorkQueue* lane) {
  const auto pump = std::make_shared<EventPump>(std::move(reader), exchange, lane);
  // The exchange keeps the pump alive until it ends.
  exchange->OnGone([pump] { pump->Cancel(); });
  pump->Start();
}

}  // namespace stagecoach::router::http
