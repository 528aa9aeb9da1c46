// Reads the metadata of a gRPC call.
#pragma once

#include <grpcpp/support/server_callback.h>

#include <string>

#include "common/trace/trace.h"

namespace stagecoach::router {

// The first value of `name`; empty if absent.
inline std::string Metadata(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  if (found == context.client_metadata().end()) return "";
  return {found->second.data(), found->second.size()};
}

inline std::string Traceparent(const grpc::CallbackServerContext& context) {
  return Metadata(context, kTraceparent);
}

}  // namespace stagecoach::router
