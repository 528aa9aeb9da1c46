// The HTTP server's address and limits.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "common/flags/front_end_flags.h"

namespace stagecoach::router::http {

// The flags, and what follows from them.
struct HttpLimits : HttpLimitFlags {
  explicit HttpLimits(const HttpLimitFlags& flags = {})
      : HttpLimitFlags(flags),
        max_bodies_bytes(std::max(size_t{256} << 20, 4 * max_body_bytes)),
        body_timeout(2 * header_timeout),
        write_timeout(header_timeout) {}

  // All bodies that are being received or wait to be parsed, together; more is 503. Small bodies do
  // not count, so that large ones cannot block them.
  size_t max_bodies_bytes;
  size_t small_body_bytes = 64 << 10;
  // From the end of the header to the end of the body.
  std::chrono::milliseconds body_timeout;
  std::chrono::milliseconds write_timeout;  // without the client accepting a byte
};

struct HttpOptions {
  std::string address;                    // HOST:PORT; port 0: any free one
  std::vector<std::string> cors_origins;  // "https://chat.example.org"; "*": every page
  int n_threads = 1;                      // threads of the event loop
  HttpLimits limits;
};

}  // namespace stagecoach::router::http
