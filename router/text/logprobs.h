// Converts log-probabilities to the client's form.
#pragma once

#include <cstdint>

#include "common/text/tokenizer.h"
#include "stagecoach/v1/inference.pb.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

// `token` is the token of `logprobs.chosen`.
void FillLogprobs(const text::Tokenizer& tokenizer, int32_t token, const v1::Logprobs& logprobs,
                  v1::PositionLogprobs* out);

}  // namespace stagecoach::router
