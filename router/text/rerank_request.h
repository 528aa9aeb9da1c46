// Rerank: how well documents answer a query, in the form of Qwen3-Reranker. The model sees a fixed
// prompt with the query and one document, and the next token is "yes" or "no".
#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "router/text/request_builder.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

// Everything but the texts themselves. INVALID_ARGUMENT names the field, and tells if the model
// does not have the form.
absl::Status CheckRerank(const ServedModel& model, const v1::RerankRequest& request);
// Makes the sequence of document `i`. Errors name "documents[i]". Its time grows with the text.
// REQUIRES: CheckRerank.
absl::StatusOr<GenerationInput> BuildRerank(const ServedModel& model,
                                            const v1::RerankRequest& request, size_t i);
// The probability of "yes" for a sequence's values.
float RerankScore(std::span<const float> values);

}  // namespace stagecoach::router
