// How the HTTP server listens, and what it puts up with.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach::router::http {

struct HttpLimits {
  size_t max_header_bytes = 32 << 10;  // request line and header fields; more is 431
  size_t max_body_bytes = 16 << 20;    // more is 413
  // Bodies of all requests that are being received or wait to be read, together; more is 503. Small
  // ones do not count, so that large ones cannot keep them out.
  size_t max_bodies_bytes = 256 << 20;
  size_t small_body_bytes = 64 << 10;
  size_t max_connections = 4096;  // one more is 503; a connection has at most one open stream
  size_t max_client_connections = 1024;  // of them from one address; one more is 503
  // From a request's first byte, or the connection's start; TLS handshake.
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{60'000};   // from the header's end to the body's
  std::chrono::milliseconds idle_timeout{75'000};   // between two requests
  std::chrono::milliseconds write_timeout{30'000};  // without the client taking a byte
  // After so long a silence a stream says that it lives; 0: never. Proxies give up after 50 s or
  // so.
  std::chrono::milliseconds keep_alive_interval{15'000};
};

struct HttpOptions {
  std::string address;                    // HOST:PORT; port 0: any free one
  std::vector<std::string> cors_origins;  // "https://chat.example.org"; "*": every page
  int n_threads = 1;                      // of the event loop
  HttpLimits limits;
};

}  // namespace stagecoach::router::http
