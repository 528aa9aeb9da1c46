// Converts a client's request into scheduler requests.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "router/scheduler/request.h"
#include "router/text/output_channels.h"
#include "router/text/sampling_params.h"
#include "router/text/served_model.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

inline constexpr size_t kMaxCacheSaltBytes = 256;

// A validated request in the router's own terms.
struct GenerationInput {
  SharedTokens prompt;
  std::string prompt_text;  // with echo only
  ResolvedSampling sampling;
  int32_t priority = 0;
  std::string cache_salt;
  bool skip_special_tokens = true;
  OutputFormat output;
};

// Whether BuildGeneration compiles a grammar, which may take seconds.
bool NeedsGrammar(const v1::GenerateRequest& request);
bool NeedsGrammar(const v1::ChatRequest& request);

// Tokenizing takes up to about 0.5 s for a prompt of 1 MB, so do not call it on a thread that
// others wait for. `unix_s`: see RenderChat. NOT_FOUND: another model's name. INVALID_ARGUMENT
// names the field.
absl::StatusOr<GenerationInput> BuildGeneration(const ServedModel& model,
                                                const v1::GenerateRequest& request);
absl::StatusOr<GenerationInput> BuildGeneration(const ServedModel& model,
                                                const v1::ChatRequest& request,
                                                std::optional<int64_t> unix_s = std::nullopt);

// Restricts KV sharing to requests of this owner. REQUIRES: `owner` contains no line break.
void KeepToOwner(std::string_view owner, GenerationInput& input);

// Makes one sequence per choice, without id and sink. Only the first computes prompt_logprobs.
std::vector<std::unique_ptr<SequenceRequest>> MakeSequences(const GenerationInput& input);

}  // namespace stagecoach::router
