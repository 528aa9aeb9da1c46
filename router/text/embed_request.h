// Embed: texts to vectors.
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "router/text/request_builder.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// Limit of texts in one Embed or Rerank; each is scheduled separately.
inline constexpr int kMaxPooledInputs = 2048;

// Everything but the inputs themselves. INVALID_ARGUMENT names the field, and tells if the model is
// no embedding model.
absl::Status CheckEmbed(const ServedModel& model, const v1::EmbedRequest& request);
// Makes the sequence of input `i`. Errors name "input[i]", or "input" if it is the only one. Its
// time grows with the text. REQUIRES: CheckEmbed.
absl::StatusOr<GenerationInput> BuildEmbedding(const ServedModel& model,
                                               const v1::EmbedRequest& request, size_t i);
// The vector for a sequence's values.
v1::Embedding MakeEmbedding(const ServedModel& model, const v1::EmbedRequest& request,
                            std::span<const float> values);

}  // namespace stagecoach::router
