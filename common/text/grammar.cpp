#include "common/text/grammar.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "common/text/abi_status.h"

namespace stagecoach::text {
namespace {

// Ids are never negative: they come from the sampler or were checked at admission.
const uint32_t* Unsigned(const int32_t* ids) { return reinterpret_cast<const uint32_t*>(ids); }

}  // namespace

GrammarSource CallsOrForm(std::string_view calls, const GrammarSource& form) {
  namespace json = boost::json;
  const json::object parts = {
      {"calls", json::string(calls.data(), calls.size())},
      {"form", json::object{{"kind", static_cast<int>(form.kind)}, {"text", form.text}}}};
  GrammarSource source = form;
  source.kind = GrammarKind::kCallsOrForm;
  source.text = json::serialize(parts);
  return source;
}

absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> GrammarVocabulary::Make(
    const TokenTable& table) {
  if (table.n_logits <= 0 || table.kinds.size() > static_cast<size_t>(table.n_logits) ||
      table.offsets.size() != table.kinds.size() + 1) {
    return absl::InvalidArgumentError(
        fmt::format("a token table of {} kinds and {} offsets for {} logits", table.kinds.size(),
                    table.offsets.size(), table.n_logits));
  }
  const ScGrammarTokens tokens{
      .kinds = reinterpret_cast<const uint8_t*>(table.kinds.data()),
      .offsets = table.offsets.data(),
      .n_ids = table.kinds.size(),
      .bytes = reinterpret_cast<const uint8_t*>(table.bytes.data()),
      .n_bytes = table.bytes.size(),
      .eos_ids = Unsigned(table.eos_ids.data()),
      .n_eos = table.eos_ids.size(),
      .n_logits = static_cast<size_t>(table.n_logits),
  };
  ErrorBuffer error{};
  ScGrammarVocabulary* handle = nullptr;
  const int32_t code = sc_grammar_vocabulary_new(&tokens, &handle, error.data(), error.size());
  if (code != 0) return AbiStatus(code, error);
  return std::shared_ptr<const GrammarVocabulary>(new GrammarVocabulary(handle, table));
}

GrammarVocabulary::~GrammarVocabulary() { sc_grammar_vocabulary_free(handle_); }

absl::StatusOr<std::shared_ptr<const Grammar>> GrammarVocabulary::Compile(
    const GrammarSource& source) const {
  if (source.text.size() > kMaxGrammarBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} bytes; at most {} are allowed", source.text.size(), kMaxGrammarBytes));
  }
  ErrorBuffer error{};
  ScGrammar* handle = nullptr;
  const int32_t code =
      sc_grammar_compile(handle_, static_cast<int32_t>(source.kind), source.text.data(),
                         source.text.size(), source.any_whitespace, source.begins_after.data(),
                         source.begins_after.size(), &handle, error.data(), error.size());
  if (code != 0) return AbiStatus(code, error);
  return std::shared_ptr<const Grammar>(new Grammar(handle));
}

Grammar::~Grammar() { sc_grammar_free(handle_); }

size_t Grammar::n_bytes() const { return sc_grammar_bytes(handle_); }

absl::StatusOr<std::unique_ptr<GrammarMatcher>> Grammar::NewMatcher() const {
  ErrorBuffer error{};
  ScGrammarMatcher* handle = nullptr;
  const int32_t code = sc_grammar_matcher_new(handle_, &handle, error.data(), error.size());
  if (code != 0) return AbiStatus(code, error);
  return std::unique_ptr<GrammarMatcher>(new GrammarMatcher(handle));
}

GrammarMatcher::~GrammarMatcher() { sc_grammar_matcher_free(handle_); }

absl::Status GrammarMatcher::Consume(std::span<const int32_t> ids) {
  ErrorBuffer error{};
  const int32_t code = sc_grammar_matcher_consume(handle_, Unsigned(ids.data()), ids.size(),
                                                  error.data(), error.size());
  return AbiStatus(code, error);
}

absl::StatusOr<bool> GrammarMatcher::Mask(std::span<uint32_t> words) {
  ErrorBuffer error{};
  int32_t may_end = 0;
  const int32_t code = sc_grammar_matcher_mask(handle_, words.data(), words.size(), &may_end,
                                               error.data(), error.size());
  if (code != 0) return AbiStatus(code, error);
  return may_end != 0;
}

}  // namespace stagecoach::text
