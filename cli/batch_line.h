// One request of a batch file: a JSON object with "prompt" (text), "prompt_ids" or "messages", and
// beside it any field of SamplingParams, GenerateRequest or ChatRequest by its name.
#pragma once

#include <string_view>
#include <variant>

#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::cli {

using BatchRequest = std::variant<v1::GenerateRequest, v1::ChatRequest>;

// INVALID_ARGUMENT names the field.
absl::StatusOr<BatchRequest> ParseBatchLine(std::string_view line);

}  // namespace stagecoach::cli
