// One client's TCP connection: requests in, one after the other, responses out.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "router/frontend/http/exchange.h"
#include "router/frontend/http/http_options.h"
#include "router/frontend/http/memory_budget.h"

namespace stagecoach::router::http {

class HttpMetrics;

// Thread-safe.
class ConnectionControl {
 public:
  virtual ~ConnectionControl() = default;
  // Ends if no request is on its way. While the server is draining others end after theirs.
  virtual void CloseIfIdle() = 0;
  // Ends now; what runs for it is told that the client is gone.
  virtual void Abort() = 0;
};

// The open connections. Thread-safe.
class ConnectionRegistry {
 public:
  void Add(ConnectionControl* connection, std::weak_ptr<ConnectionControl> weak);
  void Remove(ConnectionControl* connection);
  size_t size() const;
  void ForEach(const std::function<void(ConnectionControl&)>& action) const;
  // False when `deadline`, if there is one, came first.
  bool WaitUntilEmpty(std::optional<std::chrono::steady_clock::time_point> deadline);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::unordered_map<ConnectionControl*, std::weak_ptr<ConnectionControl>>
      connections_;  // guarded by mutex_
};

// What all connections of a server share, and outlives them.
struct ConnectionContext {
  HttpLimits limits;
  MemoryBudget* bodies = nullptr;
  HttpMetrics* metrics = nullptr;
  // Called on the event loop: must not block.
  std::function<void(HttpRequest request, std::shared_ptr<Exchange> exchange)> handle;
  std::atomic<bool> draining{false};
  ConnectionRegistry open;
};

// Serves the client of `socket`, whose executor runs one handler at a time, with TLS if `tls` is
// not null.
void StartConnection(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls,
                     ConnectionContext* context);

}  // namespace stagecoach::router::http
