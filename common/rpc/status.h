// Converts absl::Status to grpc::Status and back: the codes are the same and the message is kept.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace stagecoach {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace stagecoach
