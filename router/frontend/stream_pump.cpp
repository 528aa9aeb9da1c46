#include "router/frontend/stream_pump.h"

#include <utility>

namespace stagecoach::router {

void StreamPump::Start() {
  Post([](StreamPump& self) {
    if (self.reader_ == nullptr) return;  // cancelled before its start
    self.reader_->OnNews([weak = self.weak_from_this()] {
      if (const auto alive = weak.lock()) alive->Post(&StreamPump::Pump);
    });
    self.Pump();
  });
}

void StreamPump::WriteDone(bool ok) {
  Post([ok](StreamPump& self) {
    self.is_writing_ = false;
    self.is_gone_ = self.is_gone_ || !ok;
    self.Pump();
  });
}

void StreamPump::Cancel() {
  Post([](StreamPump& self) {
    self.is_gone_ = true;
    self.Pump();
  });
}

void StreamPump::Post(std::function<void(StreamPump&)> action) {
  lane_->Post([self = shared_from_this(), action = std::move(action)] { action(*self); });
}

void StreamPump::Pump() {
  while (reader_ != nullptr && !is_writing_) {
    StreamReader::Piece piece = reader_->Next(max_bytes_);
    if (is_gone_) piece = {.ended = true, .status = absl::CancelledError("the client is gone")};
    if (piece.started && !std::exchange(is_accepted_, true)) OnAccepted();
    if (!piece.data.empty()) {
      is_writing_ = !Write(std::move(piece.data));
    } else if (piece.ended) {
      reader_ = nullptr;
      End(piece.status);
    } else {
      return;
    }
  }
}

}  // namespace stagecoach::router
