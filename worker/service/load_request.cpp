#include "worker/service/load_request.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr uint32_t kMostBatchedTokens = 1 << 18;  // the inputs of a step fit one upload
constexpr uint32_t kMostTokens = 1 << 20;         // per sequence
constexpr uint32_t kMostSequences = 1 << 16;      // slots
constexpr uint32_t kMostLogprobs = 1 << 12;
// Memory for grammars in use or kept for reuse, in bytes. It is more than the router keeps.
constexpr size_t kMaxGrammarMemory = 256 << 20;

std::optional<DType> FromProto(v1::DType dtype) {
  switch (dtype) {
    case v1::DTYPE_FLOAT32:
      return DType::kF32;
    case v1::DTYPE_BFLOAT16:
      return DType::kBF16;
    case v1::DTYPE_FLOAT16:
      return DType::kF16;
    default:
      return std::nullopt;
  }
}

absl::Status CheckRange(const char* name, uint32_t value, uint32_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} is {}; it must be from 1 to {}", name, value, most));
}

text::TokenTable FromProto(const v1::TokenTable& table) {
  return {.kinds = table.kinds(),
          .offsets = {table.offsets().begin(), table.offsets().end()},
          .bytes = table.bytes(),
          .eos_ids = {table.eos_ids().begin(), table.eos_ids().end()},
          .n_logits = table.n_logits()};
}

}  // namespace

absl::Status CheckLoad(const v1::LoadRequest& request) {
  SC_RETURN_IF_ERROR(
      CheckRange("max_batched_tokens", request.max_batched_tokens(), kMostBatchedTokens));
  SC_RETURN_IF_ERROR(CheckRange("max_sequences", request.max_sequences(), kMostSequences));
  SC_RETURN_IF_ERROR(CheckRange("max_model_len", request.max_model_len(), kMostTokens));
  if (request.max_logprobs() > kMostLogprobs) {
    return absl::InvalidArgumentError(fmt::format("max_logprobs is {}; it must be from 0 to {}",
                                                  request.max_logprobs(), kMostLogprobs));
  }
  if (request.stage() >= request.n_stages()) {
    return absl::InvalidArgumentError(
        fmt::format("stage {} does not exist: there are {} stages, counted from 0", request.stage(),
                    request.n_stages()));
  }
  return absl::OkStatus();
}

StageModelOptions ModelOptions(const v1::LoadRequest& request, std::shared_ptr<WorkCounter> work) {
  return {.model_dir = request.model_dir(),
          .adapter_dir = request.adapter_dir(),
          .first_layer = static_cast<int32_t>(request.first_layer()),
          .n_layers = static_cast<int32_t>(request.n_layers()),
          .is_first = request.stage() == 0,
          .is_last = request.stage() + 1 == request.n_stages(),
          .dtype = FromProto(request.dtype()),
          .dummy_weights = request.load_format() == v1::LOAD_FORMAT_DUMMY,
          .max_batched_tokens = static_cast<int32_t>(request.max_batched_tokens()),
          .max_sequences = static_cast<int32_t>(request.max_sequences()),
          .max_logit_rows = SequencesAtOnce(request.max_sequences(), request.n_stages()),
          .max_model_len = static_cast<int32_t>(request.max_model_len()),
          .work = std::move(work)};
}

absl::StatusOr<std::shared_ptr<text::GrammarCache>> MakeGrammars(const v1::LoadRequest& request,
                                                                 int32_t vocab_size) {
  if (!request.has_token_table()) return nullptr;
  if (request.token_table().n_logits() != vocab_size) {
    return absl::InvalidArgumentError(
        fmt::format("the token table has {} logits, but the model has {}",
                    request.token_table().n_logits(), vocab_size));
  }
  SC_ASSIGN_OR_RETURN(auto vocabulary,
                      text::GrammarVocabulary::Make(FromProto(request.token_table())));
  return std::make_shared<text::GrammarCache>(std::move(vocabulary), kMaxGrammarMemory);
}

}  // namespace stagecoach::worker
