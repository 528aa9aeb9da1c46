// The router's HTTP server: OpenAI's API, operator endpoints, and the web page, on one port.
#pragma once

#include <prometheus/collectable.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/recoveries.h"
#include "common/stage_loads.h"
#include "router/access/access.h"
#include "router/frontend/http/http_options.h"

namespace stagecoach::router {
class Frontend;
}

namespace stagecoach::router::http {

class HttpServer {
 public:
  // Listens and serves. `frontend` outlives the server. /metrics shows `sources`; /status shows
  // `stage_loads` and `recoveries` (may be null). UNAVAILABLE if the address cannot be bound.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(
      const HttpOptions& options, std::shared_ptr<Access> access, Frontend* frontend,
      std::vector<std::shared_ptr<prometheus::Collectable>> sources, StageLoads stage_loads,
      Recoveries recoveries = nullptr);
  virtual ~HttpServer() = default;  // shuts down at once unless Shutdown was called

  // The actual HOST:PORT.
  virtual const std::string& address() const = 0;
  // /ready fails; connections close after their current request.
  virtual void SetDraining() = 0;
  // Accepts no more connections, lets open ones finish for up to `grace`, then closes them. Returns
  // when none is left. Requires a running scheduler.
  virtual void Shutdown(std::chrono::milliseconds grace) = 0;
};

}  // namespace stagecoach::router::http
