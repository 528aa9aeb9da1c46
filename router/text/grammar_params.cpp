#include "router/text/grammar_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/status.h"
#include "common/text/utf8.h"
#include "router/text/schema_check.h"
#include "router/text/schema_words.h"

namespace stagecoach::router {
namespace {

using text::GrammarKind;

constexpr std::string_view kField = "sampling.grammar";

absl::Status Bad(std::string_view field, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", field, what));
}

struct Named {
  std::string field;  // "sampling.grammar.json_schema"
  text::GrammarSource source;
};

absl::StatusOr<Named> ReadChoice(const v1::GrammarChoice& choice) {
  Named named{.field = fmt::format("{}.choice", kField), .source = {.kind = GrammarKind::kChoice}};
  if (choice.texts().empty()) return Bad(named.field, "must have at least one text");
  boost::json::array texts;
  for (int i = 0; i < choice.texts_size(); ++i) {
    SC_RETURN_IF_ERROR(
        text::CheckUtf8(fmt::format("{}.texts[{}]", named.field, i), choice.texts(i)));
    texts.emplace_back(choice.texts(i));
  }
  named.source.text = boost::json::serialize(texts);
  return named;
}

absl::StatusOr<Named> ReadSource(const v1::Grammar& grammar) {
  const auto with = [&](const char* name, GrammarKind kind, const std::string& source) {
    return Named{.field = fmt::format("{}.{}", kField, name),
                 .source = {.kind = kind, .text = source}};
  };
  switch (grammar.kind_case()) {
    case v1::Grammar::kJsonSchema:
      return with("json_schema", GrammarKind::kJsonSchema, grammar.json_schema());
    case v1::Grammar::kJsonObject:
      if (!grammar.json_object()) return Bad("sampling.grammar.json_object", "must be true");
      return with("json_object", GrammarKind::kJsonObject, "");
    case v1::Grammar::kRegex:
      return with("regex", GrammarKind::kRegex, grammar.regex());
    case v1::Grammar::kChoice:
      return ReadChoice(grammar.choice());
    case v1::Grammar::kLark:
      return with("lark", GrammarKind::kLark, grammar.lark());
    case v1::Grammar::KIND_NOT_SET:
      break;
  }
  return Bad(kField, "must have one of json_schema, json_object, regex, choice and lark");
}

// EOS, and the client's stop tokens that are special, so that no text contains them.
std::vector<int32_t> EndIds(const ServedModel& model, const v1::SamplingParams& params) {
  std::vector<int32_t> ids;
  for (const int32_t id : model.defaults.eos_ids) {
    if (id >= 0 && id < model.spec.vocab_size) ids.push_back(id);
  }
  for (const int32_t id : params.stop_token_ids()) {
    if (model.tokenizer->IsSpecial(id)) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

absl::Status OfCalls(const absl::Status& status) {
  return absl::Status(status.code(),
                      fmt::format("{}{}", kCallsField, std::string(status.message())));
}

absl::Status CheckCalls(const std::string& calls) {
  const absl::Status status = CheckSchemas({.kind = GrammarKind::kLark, .text = calls},
                                           /*may_be_lenient=*/true);
  return status.ok() ? status : OfCalls(status);
}

}  // namespace

absl::Status ResolveGrammar(const ServedModel& model, const v1::SamplingParams& params,
                            const GrammarUse& use, v1::SlotSampling& slot) {
  SC_ASSIGN_OR_RETURN(Named named, ReadSource(params.grammar()));
  const auto refuse = [&](const absl::Status& status) {
    std::string message(status.message());
    if (named.source.kind == GrammarKind::kJsonSchema) {
      message = InSchemaTerms(params.grammar().json_schema(), message);
    }
    return absl::Status(status.code(), fmt::format("{}: {}", named.field, message));
  };
  SC_RETURN_IF_ERROR(text::CheckUtf8(named.field, named.source.text));
  if (!use.may_be_lenient && named.source.text.starts_with(text::kOwnGrammarMark)) {
    return Bad(named.field, "begins with a mark that is reserved for the router's own grammars");
  }
  if (!model.grammars.ok()) return refuse(model.grammars.status());
  if (absl::Status status = CheckSchemas(named.source, use.may_be_lenient); !status.ok()) {
    return refuse(status);
  }
  named.source.any_whitespace = params.grammar().any_whitespace();
  named.source.begins_after = use.begins_after;
  const text::GrammarSource source =
      use.or_calls.empty() ? named.source : text::CallsOrForm(use.or_calls, named.source);
  const uint64_t n_choices = params.has_n() ? params.n() : 1;
  if (n_choices * source.text.size() > kMaxGrammarBytesOfChoices) {
    return Bad(named.field,
               fmt::format("{} bytes for each of {} choices; at most {} bytes in total",
                           source.text.size(), n_choices, kMaxGrammarBytesOfChoices));
  }
  const std::vector<int32_t> end_ids = EndIds(model, params);
  if (end_ids.empty()) {
    return Bad(named.field,
               "the checkpoint has no EOS token to end the answer with: give special tokens in "
               "stop_token_ids");
  }
  if (!use.or_calls.empty()) SC_RETURN_IF_ERROR(CheckCalls(use.or_calls));
  if (auto compiled = (*model.grammars)->Get(source); !compiled.ok()) {
    if (use.or_calls.empty()) return refuse(compiled.status());
    // Find out which of the two fails to compile.
    auto form = (*model.grammars)->Get(named.source);
    return form.ok() ? OfCalls(compiled.status()) : refuse(form.status());
  }

  v1::SlotGrammar& grammar = *slot.mutable_grammar();
  grammar = ToProto(source);
  grammar.mutable_end_ids()->Add(end_ids.begin(), end_ids.end());
  grammar.set_end_late(params.ignore_eos());

  std::vector<int32_t> stop_ids(slot.stop_ids().begin(), slot.stop_ids().end());
  stop_ids.insert(stop_ids.end(), end_ids.begin(), end_ids.end());
  std::sort(stop_ids.begin(), stop_ids.end());
  stop_ids.erase(std::unique(stop_ids.begin(), stop_ids.end()), stop_ids.end());
  slot.mutable_stop_ids()->Assign(stop_ids.begin(), stop_ids.end());
  return absl::OkStatus();
}

v1::SlotGrammar ToProto(const text::GrammarSource& source) {
  v1::SlotGrammar grammar;
  grammar.set_kind(static_cast<v1::GrammarKind>(source.kind));
  grammar.set_source(source.text);
  grammar.set_any_whitespace(source.any_whitespace);
  grammar.set_begins_after(source.begins_after);
  return grammar;
}

v1::TokenTable ToProto(const text::TokenTable& table) {
  v1::TokenTable out;
  out.set_kinds(table.kinds);
  out.mutable_offsets()->Assign(table.offsets.begin(), table.offsets.end());
  out.set_bytes(table.bytes);
  out.mutable_eos_ids()->Assign(table.eos_ids.begin(), table.eos_ids.end());
  out.set_n_logits(table.n_logits);
  return out;
}

}  // namespace stagecoach::router
