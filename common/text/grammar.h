// Grammars: which tokens may come next, so that a generated text is of the form asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/text_abi.h"
#include "common/text/token_table.h"

namespace stagecoach::text {

inline constexpr size_t kMaxGrammarBytes = 256 << 10;

// A kLark source that the router wrote itself begins with it, a client's may not: rules that cannot
// be ambiguous may have more items (rust/src/grammar/limits.rs).
inline constexpr std::string_view kOwnGrammarMark = "// made by the router\n";

enum class GrammarKind : uint8_t {
  kJsonSchema = SC_GRAMMAR_JSON_SCHEMA,
  kJsonObject = SC_GRAMMAR_JSON_OBJECT,
  kRegex = SC_GRAMMAR_REGEX,    // Rust's syntax; the whole text matches
  kChoice = SC_GRAMMAR_CHOICE,  // one of a JSON array of strings
  kLark = SC_GRAMMAR_LARK,
  kCallsOrForm = SC_GRAMMAR_CALLS_OR_FORM,  // made by CallsOrForm
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;  // empty for kJsonObject
  // Of the JSON kinds: whitespace where JSON has it free, at most a line break and its indentation
  // in a row. Otherwise documents are compact.
  bool any_whitespace = false;
  // The grammar is of what follows the first such text, or special token of this name: "</think>".
  // Before it anything may stand, behind it some blanks. Empty: it is of all.
  std::string begins_after;

  friend bool operator==(const GrammarSource&, const GrammarSource&) = default;
};

// Accepts texts of `calls`, in Lark, and texts of `form`, whose own settings are the whole's.
GrammarSource CallsOrForm(std::string_view calls, const GrammarSource& form);

class Grammar;

// A vocabulary, ready for grammars. Immutable: any number of threads may use one at the same time.
class GrammarVocabulary {
 public:
  // Takes up to a second for 262k tokens.
  static absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> Make(const TokenTable& table);

  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;
  ~GrammarVocabulary();

  int32_t n_logits() const { return n_logits_; }
  // 32-bit words of a mask.
  size_t n_mask_words() const { return (static_cast<size_t>(n_logits_) + 31) / 32; }
  std::span<const int32_t> eos_ids() const { return eos_ids_; }

  // Compiles and computes the first mask: what comes out can be followed from its beginning.
  // INVALID_ARGUMENT carries the reason: not of its syntax, a schema keyword that cannot be kept
  // to, larger than kMaxGrammarBytes, too complex. Never fetches what a "$ref" names elsewhere.
  // About 1 ms for a usual schema, at most some seconds.
  absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const GrammarSource& source) const;

 private:
  GrammarVocabulary(ScGrammarVocabulary* handle, const TokenTable& table)
      : handle_(handle), n_logits_(table.n_logits), eos_ids_(table.eos_ids) {}

  ScGrammarVocabulary* const handle_;  // owned
  const int32_t n_logits_;
  const std::vector<int32_t> eos_ids_;
};

// One sequence's place in a grammar. One thread at a time; some 100 us of CPU a token at worst, but
// usually under 10.
class GrammarMatcher {
 public:
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;
  ~GrammarMatcher();

  // Generated tokens, without what ends the text. FAILED_PRECONDITION: one does not continue the
  // grammar. RESOURCE_EXHAUSTED: the grammar is too complex here. The matcher is then of no use.
  absl::Status Consume(std::span<const int32_t> ids);

  // Bit i % 32 of words[i / 32] is set when token i may follow; the EOS ids where the text may end.
  // words: [n_mask_words]. Returns whether it may. RESOURCE_EXHAUSTED as above, and when no token
  // of the vocabulary can follow.
  absl::StatusOr<bool> Mask(std::span<uint32_t> words);

 private:
  friend class Grammar;
  explicit GrammarMatcher(ScGrammarMatcher* handle) : handle_(handle) {}

  ScGrammarMatcher* const handle_;  // owned
};

// Compiled. Immutable to its users: any number of threads may make matchers of one.
class Grammar {
 public:
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;
  ~Grammar();

  // Memory that it holds now: what its sequences met adds to it.
  size_t n_bytes() const;

  // At the beginning. Takes some 10 us.
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> NewMatcher() const;

 private:
  friend class GrammarVocabulary;
  explicit Grammar(ScGrammar* handle) : handle_(handle) {}

  ScGrammar* const handle_;  // owned
};

}  // namespace stagecoach::text
