// What v1::LoadConfig says, in types of the project's own.
#pragma once

#include <optional>

#include "common/dtype.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach {

// The type of weights and KV cache. Absent: as the checkpoint stores it.
std::optional<DType> DTypeOf(const v1::LoadConfig& config);
v1::DType ToProto(std::optional<DType> dtype);

namespace v1 {
bool operator==(const LoadConfig& a, const LoadConfig& b);
}  // namespace v1

}  // namespace stagecoach
