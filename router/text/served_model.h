// The model that a router serves: everything needed to check requests and to process text.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/text/chat_template.h"
#include "common/text/grammar_cache.h"
#include "common/text/token_table.h"
#include "common/text/tokenizer.h"
#include "router/access/memory_budget.h"
#include "router/text/reasoning.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

struct ServedModel {
  std::string name;
  ModelSpec spec;
  GenerationDefaults defaults;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat_template;  // null: the checkpoint has none
  bool has_reasoning = false;  // the model reasons between `reasoning_marks`
  ReasoningMarks reasoning_marks = kThinkTags;
  text::TokenTable token_table;  // for grammars; empty without them
  // An error tells why requests with a grammar are refused.
  absl::StatusOr<std::shared_ptr<text::GrammarCache>> grammars =
      absl::FailedPreconditionError("grammars are not set up");
  size_t longest_token_bytes = 0;  // of the vocabulary; 0: unknown
  // Bounds the memory of all requests; null: no limit. Outlives the model.
  MemoryBudget* memory = nullptr;
  std::string dtype;  // of the weights: "bfloat16"
  std::string kv_dtype;
  std::string hidden_dtype;   // of hidden states between stages
  int32_t max_model_len = 0;  // prompt and completion, tokens
  int32_t max_logprobs = 20;
};

// A cache of grammars that the router has compiled; with `prepare`, the last stage has too.
std::shared_ptr<text::GrammarCache> MakeGrammarCache(
    std::shared_ptr<const text::GrammarVocabulary> vocabulary,
    std::function<absl::Status(const v1::SlotGrammar&)> prepare = {});

// Reads config, tokenizer and chat template of a checkpoint folder or .gguf file, and makes the
// grammar vocabulary. The caller sets lengths and dtypes, and may replace `grammars`.
// INVALID_ARGUMENT if the tokenizer has tokens without a row in the embedding
// (text::CheckEmbeddingRows).
absl::StatusOr<ServedModel> ReadServedModel(const std::string& model_dir, const std::string& name,
                                            const std::string& chat_template_path);

// Sets has_reasoning and reasoning_marks by the chat template and the tokenizer.
void FindReasoning(ServedModel& model);

// NOT_FOUND unless `model` is empty or the served name.
absl::Status CheckModelName(const ServedModel& served, const std::string& model);

// INVALID_ARGUMENT "field[i]: ..." for the first id without a row in the embedding, since the
// lookup would read past its end.
absl::Status CheckIds(const ServedModel& model, std::span<const int32_t> ids,
                      std::string_view field);

}  // namespace stagecoach::router
