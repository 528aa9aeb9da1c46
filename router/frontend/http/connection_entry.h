#pragma once

#include "router/frontend/http/connection.h"
#include "router/frontend/http/http_metrics.h"

namespace stagecoach::router::http {

// Counts a connection as open from its construction to its end, in the metrics and among those that
// the server's shutdown waits for. A member of the connection, declared before all that use the
// server: the server may be destroyed as soon as the last entry is.
class ConnectionEntry {
 public:
  ConnectionEntry(ConnectionContext* context, ConnectionControl* connection)
      : context_(*context), connection_(connection) {
    context_.metrics->ConnectionOpened();
  }
  ~ConnectionEntry() {
    context_.metrics->ConnectionClosed();
    context_.open.Remove(connection_);
  }
  ConnectionEntry(const ConnectionEntry&) = delete;
  ConnectionEntry& operator=(const ConnectionEntry&) = delete;

 private:
  ConnectionContext& context_;
  ConnectionControl* const connection_;
};

}  // namespace stagecoach::router::http
