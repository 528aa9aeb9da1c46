// What v1::LoadConfig says, in types of the project's own.
#pragma once

#include <optional>

#include "absl/status/status.h"
#include "common/dtype.h"
#include "common/encoding/encoding.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach {

// The type of weights, and of the KV cache if that has none of its own. Absent: as the checkpoint
// stores it.
std::optional<DType> DTypeOf(const v1::LoadConfig& config);
// The type of the KV cache of a model that is stored as `stored`.
DType KvDTypeOf(const v1::LoadConfig& config, DType stored);
// The type of hidden states on their way from one stage to the next. Within a stage they are
// float32.
DType HiddenDTypeOf(const v1::LoadConfig& config);
v1::DType ToProto(std::optional<DType> dtype);

// The code of linear layers' weights. Absent: as the checkpoint stores them.
std::optional<Code> QuantizeTo(const v1::LoadConfig& config);
// INVALID_ARGUMENT: two of the values exclude each other, or this version does not know one.
absl::Status CheckLoadConfig(const v1::LoadConfig& config);
// INVALID_ARGUMENT: with these values, tokens depend on the number of stages. A worker with
// --batch-invariant refuses them.
absl::Status CheckBatchInvariant(const v1::LoadConfig& config);

namespace v1 {
bool operator==(const LoadConfig& a, const LoadConfig& b);
}  // namespace v1

}  // namespace stagecoach
