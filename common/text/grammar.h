// Grammars: constrain which tokens may come next, so that generated text has the requested form.
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

// A kLark source that the router writes itself begins with this mark; a client's must not. Rules
// that cannot be ambiguous may use more parser items (rust/src/grammar/limits.rs).
inline constexpr std::string_view kOwnGrammarMark = "// made by the router\n";

enum class GrammarKind : uint8_t {
  kJsonSchema = SC_GRAMMAR_JSON_SCHEMA,
  kJsonObject = SC_GRAMMAR_JSON_OBJECT,
  kRegex = SC_GRAMMAR_REGEX,    // Rust's regex syntax; the whole text must match
  kChoice = SC_GRAMMAR_CHOICE,  // one text of a JSON array of strings
  kLark = SC_GRAMMAR_LARK,
  kCallsOrForm = SC_GRAMMAR_CALLS_OR_FORM,  // made by CallsOrForm()
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text;  // empty for kJsonObject
  // JSON kinds only: allows whitespace between JSON tokens, each time at most a space or a line
  // break with its indentation. If false, documents are compact.
  bool any_whitespace = false;
  // If not empty, the grammar applies only after the first occurrence of this text, or of the
  // special token with this name, such as "</think>". Any text may come before it, and a few blanks
  // after it. If empty, the grammar applies to the whole text.
  std::string begins_after;

  friend bool operator==(const GrammarSource&, const GrammarSource&) = default;
};

// Returns a grammar that accepts texts of `calls` (in Lark) and texts of `form`. The other settings
// of `form` apply to the whole.
GrammarSource CallsOrForm(std::string_view calls, const GrammarSource& form);

class Grammar;

// A vocabulary, prepared for grammars. Immutable: any number of threads may use one at the same
// time.
class GrammarVocabulary {
 public:
  // Takes up to a second for 262k tokens.
  static absl::StatusOr<std::shared_ptr<const GrammarVocabulary>> Make(const TokenTable& table);

  GrammarVocabulary(const GrammarVocabulary&) = delete;
  GrammarVocabulary& operator=(const GrammarVocabulary&) = delete;
  ~GrammarVocabulary();

  int32_t n_logits() const { return n_logits_; }
  // Number of 32-bit words in a mask.
  size_t n_mask_words() const { return (static_cast<size_t>(n_logits_) + 31) / 32; }
  std::span<const int32_t> eos_ids() const { return eos_ids_; }

  // Compiles the grammar and computes its first mask, so that an accepted grammar works at least at
  // its beginning. INVALID_ARGUMENT gives the reason: a syntax error, a schema keyword that cannot
  // be enforced, a source larger than kMaxGrammarBytes, or a grammar that is too complex. Never
  // fetches a remote "$ref". Takes about 1 ms for a typical schema, and a few seconds at most.
  absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const GrammarSource& source) const;

 private:
  GrammarVocabulary(ScGrammarVocabulary* handle, const TokenTable& table)
      : handle_(handle), n_logits_(table.n_logits), eos_ids_(table.eos_ids) {}

  ScGrammarVocabulary* const handle_;  // owned
  const int32_t n_logits_;
  const std::vector<int32_t> eos_ids_;
};

// The position of one sequence in a grammar. Use from one thread at a time. Usually takes less than
// 10 us of CPU time per token, and some 100 us at worst.
class GrammarMatcher {
 public:
  GrammarMatcher(const GrammarMatcher&) = delete;
  GrammarMatcher& operator=(const GrammarMatcher&) = delete;
  ~GrammarMatcher();

  // Consumes generated tokens, without the EOS token. FAILED_PRECONDITION: a token does not
  // continue the grammar. RESOURCE_EXHAUSTED: the grammar is too complex at this position. After an
  // error the matcher must not be used any more.
  absl::Status Consume(std::span<const int32_t> ids);

  // Sets bit i % 32 of words[i / 32] if token i may follow; EOS ids are set if the text may end.
  // words: [n_mask_words]. Returns whether the text may end. RESOURCE_EXHAUSTED as above, and also
  // if no token of the vocabulary can follow.
  absl::StatusOr<bool> Mask(std::span<uint32_t> words);

 private:
  friend class Grammar;
  explicit GrammarMatcher(ScGrammarMatcher* handle) : handle_(handle) {}

  ScGrammarMatcher* const handle_;  // owned
};

// A compiled grammar. Immutable to its users: any number of threads may make matchers from it.
class Grammar {
 public:
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;
  ~Grammar();

  // Memory that the grammar holds now. It grows while sequences use the grammar.
  size_t n_bytes() const;

  // Returns a matcher at the grammar's beginning. Takes about 10 us.
  absl::StatusOr<std::unique_ptr<GrammarMatcher>> NewMatcher() const;

 private:
  friend class GrammarVocabulary;
  explicit Grammar(ScGrammar* handle) : handle_(handle) {}

  ScGrammar* const handle_;  // owned
};

}  // namespace stagecoach::text
