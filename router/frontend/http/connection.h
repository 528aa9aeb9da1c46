// One client's TCP connection: requests in, one after the other, responses out.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "router/frontend/http/admission.h"
#include "router/frontend/http/client_counts.h"
#include "router/frontend/http/connection_registry.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_options.h"
#include "router/frontend/http/memory_budget.h"

namespace stagecoach::router::http {

class HttpMetrics;

// What all connections of a server share, and outlives them.
struct ConnectionContext {
  HttpLimits limits;
  MemoryBudget* bodies = nullptr;
  HttpMetrics* metrics = nullptr;
  // Called on the event loop: must not block.
  std::function<void(HttpRequest request, Admission admission, std::shared_ptr<Exchange> exchange)>
      handle;
  // By the header alone, which comes first. Likewise.
  std::function<Admission(const HttpRequest& head)> admit;
  std::atomic<bool> draining{false};
  ConnectionRegistry open;
};

// Serves the client of `socket`, whose executor runs one handler at a time, with TLS if `tls` is
// not null. `place` is given back at the connection's end.
void StartConnection(boost::asio::ip::tcp::socket socket, ClientCounts::Place place,
                     boost::asio::ssl::context* tls, ConnectionContext* context);

}  // namespace stagecoach::router::http
