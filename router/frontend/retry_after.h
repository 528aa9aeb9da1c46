// What a gRPC client that was refused for now is told to wait.
#pragma once

#include <grpcpp/server_context.h>

#include "absl/status/status.h"

namespace stagecoach::router {

// About the time in which a full queue moves on.
inline constexpr char kRetryAfterMs[] = "1000";

inline void AddRetryAfter(grpc::CallbackServerContext* context, const absl::Status& status) {
  if (absl::IsResourceExhausted(status)) {
    context->AddTrailingMetadata("retry-after-ms", kRetryAfterMs);
  }
}

}  // namespace stagecoach::router
