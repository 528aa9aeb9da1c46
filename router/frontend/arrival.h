// The origin of a request: arrival time, trace context and caller.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "router/access/caller.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

struct Arrival {
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  std::chrono::sys_time<std::chrono::microseconds> wall_time =
      std::chrono::time_point_cast<std::chrono::microseconds>(std::chrono::system_clock::now());
  std::string traceparent;  // W3C trace context from the client; empty: none
  Caller caller;
  std::string api = "grpc";  // or the path over HTTP; for the log
};

// For templates that ask for the time, and for answers that tell it.
inline int64_t UnixSeconds(const Arrival& arrival) {
  return std::chrono::floor<std::chrono::seconds>(arrival.wall_time).time_since_epoch().count();
}

inline Account AccountOf(const Caller& caller) {
  return {.tenant = caller.tenant, .weight = caller.weight};
}

}  // namespace stagecoach::router
