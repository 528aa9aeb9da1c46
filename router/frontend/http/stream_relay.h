// Sends a kept stream as server-sent events.
#pragma once

#include <memory>

#include "common/work_queue.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/stream_store.h"

namespace stagecoach::router::http {

// Reads the stream until its end, or until the client is gone. `lane` has one thread and outlives
// the exchange.
void RelayStream(std::unique_ptr<StreamReader> reader, const std::shared_ptr<Exchange>& exchange,
                 WorkQueue* lane);

}  // namespace stagecoach::router::http
