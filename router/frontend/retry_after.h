// Tells a refused gRPC client how long to wait.
#pragma once

#include <grpcpp/server_context.h>

#include <string>

#include "absl/status/status.h"
#include "router/access/retry_after.h"

namespace stagecoach::router {

inline void AddRetryAfter(grpc::CallbackServerContext* context, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    context->AddTrailingMetadata("retry-after-ms", std::to_string(1000 * RetryAfterS(status)));
  }
}

}  // namespace stagecoach::router
