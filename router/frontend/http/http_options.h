// The HTTP server's address and limits.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach::router::http {

struct HttpLimits {
  size_t max_header_bytes = 32 << 10;    // request line and header fields; more is 431
  size_t max_body_bytes = 16 << 20;      // more is 413
  size_t max_connections = 4096;         // more are 503; a connection has at most one open stream
  size_t max_client_connections = 1024;  // from one client (see ClientCounts); more are 503
  // From a request's first byte or, for the first request, from the connection's start; also for
  // the TLS handshake.
  std::chrono::milliseconds header_timeout{10'000};
  // From the end of the header to the end of the body.
  std::chrono::milliseconds body_timeout{60'000};
  std::chrono::milliseconds idle_timeout{75'000};   // between two requests
  std::chrono::milliseconds write_timeout{30'000};  // without the client accepting a byte
  // A stream that is silent for this long sends a comment; 0: never. Typical proxies time out after
  // about 50 s.
  std::chrono::milliseconds keep_alive_interval{15'000};
};

struct HttpOptions {
  std::string address;                    // HOST:PORT; port 0: any free one
  std::vector<std::string> cors_origins;  // "https://chat.example.org"; "*": every page
  int n_threads = 1;                      // threads of the event loop
  HttpLimits limits;
};

}  // namespace stagecoach::router::http
