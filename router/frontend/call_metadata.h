// What a gRPC call's metadata says.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "common/trace/trace.h"

namespace stagecoach::router {

// Empty: none.
inline std::string Traceparent(const grpc::CallbackServerContext& context) {
  const auto found = context.client_metadata().find(kTraceparent);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

}  // namespace stagecoach::router
