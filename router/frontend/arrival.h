// How a request came.
#pragma once

#include <chrono>
#include <string>

namespace stagecoach::router {

struct Arrival {
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  std::string traceparent;  // W3C's, as the client gave it; empty: none
};

}  // namespace stagecoach::router
