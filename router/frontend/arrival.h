// The origin of a request: arrival time, trace context and caller.
#pragma once

#include <chrono>
#include <string>

#include "router/access/caller.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

struct Arrival {
  std::chrono::steady_clock::time_point time = std::chrono::steady_clock::now();
  std::string traceparent;  // W3C trace context from the client; empty: none
  Caller caller;
};

inline Account AccountOf(const Caller& caller) {
  return {.tenant = caller.tenant, .weight = caller.weight};
}

}  // namespace stagecoach::router
