// Who sends a request, whatever protocol it comes by.
#pragma once

#include <string>

namespace stagecoach::router {

struct Caller {
  std::string tenant;  // printable ASCII; empty: the server has no keys, and all are one
};

}  // namespace stagecoach::router
