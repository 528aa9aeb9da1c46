// One client's TCP connection: reads requests one after another, and writes responses.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <functional>
#include <memory>

#include "router/access/memory_budget.h"
#include "router/frontend/http/admission.h"
#include "router/frontend/http/client_counts.h"
#include "router/frontend/http/connection_registry.h"
#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_options.h"

namespace stagecoach::router::http {

class HttpMetrics;

// Shared by all connections of a server; outlives them.
struct ConnectionContext {
  HttpLimits limits;
  MemoryBudget* memory = nullptr;  // for the bodies
  HttpMetrics* metrics = nullptr;
  // Runs on the event loop: must not block.
  std::function<void(HttpRequest request, Admission admission, std::shared_ptr<Exchange> exchange)>
      handle;
  // Decides from the header alone, before `handle`. Runs on the event loop too.
  std::function<Admission(const HttpRequest& head)> admit;
  std::atomic<bool> draining{false};
  ConnectionRegistry open;
};

// Serves the client of `socket`. REQUIRES: the socket's executor runs one handler at a time. Uses
// TLS if `tls` is not null. Returns `place` when the connection ends.
void StartConnection(boost::asio::ip::tcp::socket socket, ClientCounts::Place place,
                     boost::asio::ssl::context* tls, ConnectionContext* context);

}  // namespace stagecoach::router::http
