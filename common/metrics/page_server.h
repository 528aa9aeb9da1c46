// A small HTTP server for one page that is made anew for who asks.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// No client can keep others from the page: each has a deadline to ask and one to read, of those
// that only hold a connection the oldest goes when there are too many, and who asks while the page
// is being made shares the next one.
class PageServer {
 public:
  // Serves `make_page`, of `content_type`, at `path` of HOST:PORT (port 0: any free one).
  // `make_page` is called on one thread and may take its time. UNAVAILABLE when the address cannot
  // be bound.
  static absl::StatusOr<std::unique_ptr<PageServer>> Start(const std::string& address,
                                                           std::string path,
                                                           std::string content_type,
                                                           std::function<std::string()> make_page);
  // Ends connections at once; waits for `make_page`.
  virtual ~PageServer() = default;

  // The real HOST:PORT.
  virtual const std::string& address() const = 0;
};

}  // namespace stagecoach
