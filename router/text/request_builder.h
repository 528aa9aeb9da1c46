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
// names the field, or tells that the model generates no text.
absl::StatusOr<GenerationInput> BuildGeneration(const ServedModel& model,
                                                const v1::GenerateRequest& request);
absl::StatusOr<GenerationInput> BuildGeneration(const ServedModel& model,
                                                const v1::ChatRequest& request,
                                                std::optional<int64_t> unix_s = std::nullopt);

// The parts that requests share. Errors name `field`.
//
// The tokens of a text; add_special: with those that the checkpoint puts around a text.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const ServedModel& model, std::string_view field,
                                                  const std::string& text, bool add_special);
// The input of a sequence that ends with its prompt and gives numbers.
absl::StatusOr<GenerationInput> BuildPooled(const ServedModel& model, std::string_view field,
                                            std::vector<int32_t> prompt, v1::SlotPooling pooling,
                                            int32_t priority, const std::string& cache_salt);
absl::Status CheckNames(const std::string& request_id, const std::string& cache_salt);
absl::Status NoMemory();

// Restricts KV sharing to requests of this owner. REQUIRES: `owner` contains no line break.
void KeepToOwner(std::string_view owner, GenerationInput& input);

// Makes one sequence per choice, without id and sink. Only the first computes prompt_logprobs.
std::vector<std::unique_ptr<SequenceRequest>> MakeSequences(const GenerationInput& input);

}  // namespace stagecoach::router
