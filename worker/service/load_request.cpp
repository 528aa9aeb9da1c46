#include "worker/service/load_request.h"

#include <fmt/format.h>

#include <utility>

#include "common/config/load_config.h"
#include "common/status.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {
namespace {

constexpr int32_t kMostBatchedTokens = 1 << 18;  // the inputs of a step fit one upload
constexpr int32_t kMostTokens = 1 << 20;         // per sequence
constexpr int32_t kMostSequences = 1 << 16;      // slots
constexpr int32_t kMostLogprobs = 1 << 12;
// Memory for grammars in use or kept for reuse, in bytes. It is more than the router keeps.
constexpr size_t kMaxGrammarMemory = 256 << 20;

absl::Status CheckRange(const char* name, int32_t value, int32_t least, int32_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{} is {}; it must be from {} to {}", name, value, least, most));
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
  const v1::LoadConfig& config = request.config();
  SC_RETURN_IF_ERROR(
      CheckRange("max_batched_tokens", config.max_batched_tokens(), 1, kMostBatchedTokens));
  SC_RETURN_IF_ERROR(CheckRange("max_sequences", config.max_sequences(), 1, kMostSequences));
  SC_RETURN_IF_ERROR(CheckRange("max_model_len", config.max_model_len(), 1, kMostTokens));
  SC_RETURN_IF_ERROR(CheckRange("max_logprobs", config.max_logprobs(), 0, kMostLogprobs));
  if (!config.kv_store().empty()) SC_RETURN_IF_ERROR(OpenKvStore(config.kv_store(), 1).status());
  if (request.stage() >= request.n_stages()) {
    return absl::InvalidArgumentError(
        fmt::format("stage {} does not exist: there are {} stages, counted from 0", request.stage(),
                    request.n_stages()));
  }
  return absl::OkStatus();
}

absl::Status CheckNumerics(const v1::LoadRequest& request, const std::string& numerics) {
  if (request.numerics().empty() || request.numerics() == numerics) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "this worker computes with \"{}\", and the one whose place it takes computed with "
      "\"{}\", so tokens could change: start the same version on the same kind of device, "
      "or start the router again",
      numerics, request.numerics()));
}

bool IsLoaded(const v1::LoadRequest& loaded, const v1::LoadRequest& request) {
  if (!loaded.has_lease() || loaded.lease().holder() != request.lease().holder()) return false;
  // What only limits the memory found at the load does not change what is loaded.
  const auto core = [](v1::LoadRequest one) {
    one.clear_lease();
    one.clear_n_local_workers();
    one.mutable_config()->clear_kv_memory_bytes();
    return one.SerializeAsString();
  };
  return core(loaded) == core(request);
}

StageModelOptions ModelOptions(const v1::LoadRequest& request, std::shared_ptr<WorkCounter> work) {
  return {.model_dir = request.model_dir(),
          .first_layer = static_cast<int32_t>(request.first_layer()),
          .n_layers = static_cast<int32_t>(request.n_layers()),
          .is_first = request.stage() == 0,
          .is_last = request.stage() + 1 == request.n_stages(),
          .config = request.config(),
          .max_logit_rows = SequencesAtOnce(request.config().max_sequences(), request.n_stages()),
          .work = std::move(work)};
}

absl::StatusOr<std::unique_ptr<StageModel>> LoadBatchInvariant(const StageModelOptions& options,
                                                               kernels::Ops* ops,
                                                               const LoadProgressFn& progress) {
  SC_RETURN_IF_ERROR(CheckBatchInvariant(options.config));
  return StageModel::Load(options, ops, progress);
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
