#include "router/frontend/http/stream_relay.h"

#include <utility>

#include "router/frontend/http/api_error.h"
#include "router/frontend/http/event_stream.h"

namespace stagecoach::router::http {
namespace {

// Bytes per write: a late client gets missed output in pieces of this size.
constexpr size_t kPieceBytes = 8 << 10;

}  // namespace

void StreamRelay::Start(std::unique_ptr<StreamReader> reader, std::shared_ptr<Exchange> exchange,
                        WorkQueue* lane) {
  const auto relay = std::make_shared<StreamRelay>(std::move(reader), exchange, lane);
  relay->reader_->OnNews([weak = std::weak_ptr(relay)] {
    if (const auto alive = weak.lock()) alive->Post([](StreamRelay& self) { self.Pump(); });
  });
  // The exchange keeps the relay alive until it ends.
  exchange->OnGone([relay] { relay->Post([](StreamRelay& self) { self.reader_ = nullptr; }); });
  relay->Post([](StreamRelay& self) { self.Pump(); });
}

template <typename Action>
void StreamRelay::Post(Action action) {
  lane_->Post([self = shared_from_this(), action] { action(*self); });
}

void StreamRelay::Pump() {
  while (reader_ != nullptr && !is_writing_) {
    StreamReader::Piece piece = reader_->Next(kPieceBytes);
    if (piece.started && !std::exchange(has_started_, true)) {
      exchange_->StartStream(EventStreamHead(), /*has_ids=*/true);
    }
    if (piece.ended) return End(std::move(piece));
    if (piece.data.empty()) return;
    is_writing_ =
        !exchange_->Write(std::move(piece.data), [self = shared_from_this()](bool is_there) {
          if (!is_there) return;
          self->Post([](StreamRelay& relay) {
            relay.is_writing_ = false;
            relay.Pump();
          });
        });
  }
}

void StreamRelay::End(StreamReader::Piece piece) {
  reader_ = nullptr;
  if (piece.status.ok()) return exchange_->EndStream(std::move(piece.data));
  if (!piece.data.empty()) exchange_->Write(std::move(piece.data), [](bool) {});
  exchange_->FailStream(ErrorResponse(piece.status), ErrorEvents(piece.status));
}

}  // namespace stagecoach::router::http
