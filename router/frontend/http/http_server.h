// The router's HTTP server: OpenAI's API, what operators ask for, and the web page, on one port.
#pragma once

#include <prometheus/collectable.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/access/access.h"
#include "router/frontend/http/http_options.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

// By stage, the milliseconds that it has computed since the start, where it tells; blocks shortly.
using StageLoads = std::function<std::vector<std::optional<double>>()>;

class HttpServer {
 public:
  // Listens and serves. `frontend` outlives the server; /metrics shows `sources`, and /status what
  // `stage_loads` (may be null) says. UNAVAILABLE when the
  // address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const HttpOptions& options, std::shared_ptr<Access> access, Frontend* frontend,
      std::vector<std::shared_ptr<prometheus::Collectable>> sources, StageLoads stage_loads);
  virtual ~HttpServer() = default;  // shuts down at once if that was not done

  // The real HOST:PORT.
  virtual const std::string& address() const = 0;
  // /ready says no; connections end with the request that they are at.
  virtual void SetDraining() = 0;
  // Takes no more connections, gives open ones `grace` to end, then closes them; returns when none
  // is left. Needs the scheduler.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace stagecoach::router::http
