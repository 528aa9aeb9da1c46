// absl::Status <-> grpc::Status: the same codes, the message carried along.
#pragma once

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace stagecoach {

grpc::Status ToGrpc(const absl::Status& status);
absl::Status FromGrpc(const grpc::Status& status);

}  // namespace stagecoach
