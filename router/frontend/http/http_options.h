// The HTTP server's address and limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "common/flags/front_end_flags.h"

namespace stagecoach::router::http {

// The flags, and what follows from them.
struct HttpLimits : HttpLimitFlags {
  explicit HttpLimits(const HttpLimitFlags& flags = {})
      : HttpLimitFlags(flags), body_timeout(2 * header_timeout), write_timeout(header_timeout) {}

  // From the end of the header to the end of the body.
  std::chrono::milliseconds body_timeout;
  std::chrono::milliseconds write_timeout;  // without the client accepting a byte
};

struct HttpOptions {
  std::string address;                    // HOST:PORT; port 0: any free one
  std::vector<std::string> cors_origins;  // "https://chat.example.org"; "*": every page
  int n_threads = 1;                      // threads of the event loop
  HttpLimits limits;
  ResponseLimits responses;  // what is kept of responses
};

}  // namespace stagecoach::router::http
