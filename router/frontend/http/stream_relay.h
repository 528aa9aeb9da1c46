// Sends a kept stream to one client.
#pragma once

#include <memory>

#include "common/work_queue.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/stream_store.h"

namespace stagecoach::router::http {

// All state belongs to a text thread. Lives until the exchange ends or the client is gone; neither
// affects the stream itself.
class StreamRelay final : public std::enable_shared_from_this<StreamRelay> {
 public:
  // `lane` has one thread and outlives the relay.
  static void Start(std::unique_ptr<StreamReader> reader, std::shared_ptr<Exchange> exchange,
                    WorkQueue* lane);

  StreamRelay(std::unique_ptr<StreamReader> reader, std::shared_ptr<Exchange> exchange,
              WorkQueue* lane)
      : lane_(lane), reader_(std::move(reader)), exchange_(std::move(exchange)) {}

 private:
  template <typename Action>
  void Post(Action action);
  // Writes the available data.
  void Pump();
  void End(StreamReader::Piece piece);

  WorkQueue* const lane_;
  std::unique_ptr<StreamReader> reader_;  // null: nothing more to send
  const std::shared_ptr<Exchange> exchange_;
  bool has_started_ = false;
  bool is_writing_ = false;
};

}  // namespace stagecoach::router::http
