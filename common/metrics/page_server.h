// A small HTTP server for one page that is generated on request.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// No client can block the page for others. Each client has a deadline to send its request and one
// to read the answer. If there are too many connections, the oldest connection that has not sent a
// request is closed. Clients that ask while a page is being made share the next one.
class PageServer {
 public:
  // Serves the result of `make_page` as `content_type` at `path` of HOST:PORT (port 0: any free
  // port). `make_page` is called on one thread and may be slow. UNAVAILABLE if the address cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const std::string& address,
                                                           std::string path,
                                                           std::string content_type,
                                                           std::function<std::string()> make_page);
  // Closes all connections at once; waits for a running `make_page`.
  virtual ~PageServer() = default;

  // The actual HOST:PORT.
  virtual const std::string& address() const = 0;
};

}  // namespace stagecoach
