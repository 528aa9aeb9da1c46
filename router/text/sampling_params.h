// A client's SamplingParams, checked and completed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/text/grammar_params.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

inline constexpr uint32_t kMaxChoices = 128;
inline constexpr int kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 256;
inline constexpr int kMaxBiases = 1024;
inline constexpr int kMaxStopTokens = 256;
// Limit of log-probabilities in one answer: 131,072 positions with 31 alternatives each.
inline constexpr uint64_t kMaxLogprobs = 4 << 20;

// The error text for an invalid max_tokens, after its value.
inline constexpr char kMaxTokensRange[] =
    "is not an integer from 1 to what the prompt leaves of the model's context";

struct ResolvedSampling {
  v1::SlotSampling slot;  // of choice 0; every value final
  uint32_t n = 1;
  uint32_t max_tokens = 0;
  std::vector<std::string> stop;
  // Upper limit of log-probabilities in the answer: those of each choice's new tokens, and those of
  // the prompt, which OpenAI's API repeats with each choice.
  uint64_t n_logprobs = 0;
};

// Absent fields take generation_config.json's value, then the protocol's default. INVALID_ARGUMENT
// names the field, as in "sampling.top_p: 1.5 is not in (0, 1]". Takes long with a grammar
// (ResolveGrammar, which takes `grammar_use`).
absl::StatusOr<ResolvedSampling> ResolveSampling(const ServedModel& model,
                                                 const v1::SamplingParams& params,
                                                 size_t n_prompt_tokens,
                                                 const GrammarUse& grammar_use = {});

// Draws a seed if the client gave none, so that the request always gives the same tokens.
void FixSeed(v1::SamplingParams& params);

// Choice 0 has the request's own seed, the others seeds derived from it.
uint64_t ChoiceSeed(uint64_t seed, uint32_t choice);

}  // namespace stagecoach::router
