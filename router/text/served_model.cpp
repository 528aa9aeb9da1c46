#include "router/text/served_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/status.h"
#include "common/text/embedding_rows.h"
#include "router/text/grammar_params.h"
#include "router/text/harmony.h"

namespace stagecoach::router {

namespace {

// Grammars beyond this limit are dropped, and compiled again when needed.
constexpr size_t kMaxGrammarMemory = 64 << 20;

// If grammars do not work with the tokenizer, all other requests are still served.
void AddGrammars(ServedModel& model) {
  auto table =
      text::MakeTokenTable(*model.tokenizer, model.spec.vocab_size, model.defaults.eos_ids);
  if (!table.ok()) {
    model.grammars = table.status();
    return;
  }
  auto vocabulary = text::GrammarVocabulary::Make(*table);
  if (!vocabulary.ok()) {
    model.grammars = vocabulary.status();
    return;
  }
  model.token_table = *std::move(table);
  model.grammars = MakeGrammarCache(*std::move(vocabulary));
}

// Not every checkpoint's files name all of Harmony's ends.
void AddHarmonyEnds(ServedModel& model) {
  if (model.chat_template == nullptr ||
      DetectToolFamily(*model.chat_template) != ToolFamily::kHarmony) {
    return;
  }
  std::vector<int32_t>& ids = model.defaults.eos_ids;
  for (const std::string_view mark : kHarmonyEnds) {
    const std::optional<int32_t> id = model.tokenizer->TokenId(mark);
    if (id && std::ranges::find(ids, *id) == ids.end()) ids.push_back(*id);
  }
}

}  // namespace

std::shared_ptr<text::GrammarCache> MakeGrammarCache(
    std::shared_ptr<const text::GrammarVocabulary> vocabulary,
    std::function<absl::Status(const v1::SlotGrammar&)> prepare) {
  text::GrammarCache::OnCompiled on_compiled;
  if (prepare) {
    on_compiled = [prepare = std::move(prepare)](const text::GrammarSource& source) {
      return prepare(ToProto(source));
    };
  }
  return std::make_shared<text::GrammarCache>(std::move(vocabulary), kMaxGrammarMemory,
                                              std::move(on_compiled));
}

void FindReasoning(ServedModel& model) {
  // The template knows better than the tokenizer, which may have tokens that the model never
  // writes.
  for (const ReasoningMarks& marks :
       {kThoughtChannel, kThinkBrackets, kSeedThinkTags, kKimiThinkTags, kThinkTags}) {
    if (model.chat_template == nullptr || !model.chat_template->Mentions(marks.end) ||
        !model.chat_template->Mentions(marks.calls)) {
      continue;
    }
    model.has_reasoning = true;
    model.reasoning_marks = marks;
    return;
  }
  model.has_reasoning = model.tokenizer->TokenId(kThinkTags.end).has_value();
}

absl::StatusOr<ServedModel> ReadServedModel(const std::string& model_dir, const std::string& name,
                                            const std::string& chat_template_path) {
  ServedModel model;
  model.name = name;
  SC_ASSIGN_OR_RETURN(model.spec, ReadModelSpec(model_dir));
  SC_ASSIGN_OR_RETURN(model.defaults, ReadGenerationDefaults(model_dir));
  SC_ASSIGN_OR_RETURN(model.tokenizer, text::Tokenizer::Load(model_dir));
  if (absl::Status fits = text::CheckEmbeddingRows(*model.tokenizer, model.spec.vocab_size);
      !fits.ok()) {
    return absl::Status(fits.code(), fmt::format("{}: {}", model_dir, std::string(fits.message())));
  }
  for (int32_t id = 0; id < model.tokenizer->vocab_size(); ++id) {
    model.longest_token_bytes =
        std::max(model.longest_token_bytes, model.tokenizer->TokenBytes(id).size());
  }
  auto chat_template = text::ChatTemplate::Load(model_dir, chat_template_path);
  if (chat_template.ok()) {
    model.chat_template = *std::move(chat_template);
  } else if (!absl::IsNotFound(chat_template.status()) || !chat_template_path.empty()) {
    return chat_template.status();
  }
  FindReasoning(model);
  AddHarmonyEnds(model);
  AddGrammars(model);
  return model;
}

absl::Status CheckModelName(const ServedModel& served, const std::string& model) {
  if (model.empty() || model == served.name) return absl::OkStatus();
  return absl::NotFoundError(
      fmt::format("model: '{}' is not served here; this is '{}'", model, served.name));
}

absl::Status CheckIds(const ServedModel& model, std::span<const int32_t> ids,
                      std::string_view field) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < model.spec.vocab_size) continue;
    const bool known = ids[i] >= 0 && ids[i] < model.tokenizer->vocab_size();
    return absl::InvalidArgumentError(
        fmt::format("{}[{}]: token id {}{} is outside the vocabulary of {}", field, i, ids[i],
                    known ? fmt::format(" (\"{}\")", model.tokenizer->TokenBytes(ids[i])) : "",
                    model.spec.vocab_size));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::router
