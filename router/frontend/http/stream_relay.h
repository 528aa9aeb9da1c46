// A kept stream on its way to one client.
#pragma once

#include <memory>

#include "common/work_queue.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/stream_store.h"

namespace stagecoach::router::http {

// All state belongs to a text thread. Lives until the exchange's end, or until the client is gone,
// which the stream does not care about.
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
  // Writes what there is.
  void Pump();
  void End(StreamReader::Piece piece);

  WorkQueue* const lane_;
  std::unique_ptr<StreamReader> reader_;  // null: nothing more is to be said
  const std::shared_ptr<Exchange> exchange_;
  bool has_started_ = false;
  bool is_writing_ = false;
};

}  // namespace stagecoach::router::http
