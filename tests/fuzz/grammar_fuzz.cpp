// Compiles a client's grammar and follows it for some tokens. The first byte selects the kind of
// grammar.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "common/text/grammar.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace stagecoach;

// One token per byte value, and some longer tokens.
const text::GrammarVocabulary& Vocabulary() {
  static const auto vocabulary = [] {
    text::TokenTable table{.offsets = {0}, .eos_ids = {0}};
    const auto add = [&](std::string_view bytes, int kind) {
      table.kinds += static_cast<char>(kind);
      table.bytes += bytes;
      table.offsets.push_back(static_cast<uint32_t>(table.bytes.size()));
    };
    add("<eos>", SC_GRAMMAR_TOKEN_SPECIAL);
    for (int byte = 0; byte < 256; ++byte) {
      const char c = static_cast<char>(byte);
      add({&c, 1}, SC_GRAMMAR_TOKEN_TEXT);
    }
    for (const char* token : {"\":", "{\"", "},", "true", "null", "ab", "é", "日本", "    "}) {
      add(token, SC_GRAMMAR_TOKEN_TEXT);
    }
    table.n_logits = static_cast<int32_t>(table.kinds.size());
    return text::GrammarVocabulary::Make(table).value();
  }();
  return *vocabulary;
}

void Follow(const text::Grammar& grammar, size_t seed) {
  const auto matcher = grammar.NewMatcher().value();
  std::vector<uint32_t> words(Vocabulary().n_mask_words());
  std::mt19937 random(static_cast<uint32_t>(seed));
  for (int i = 0; i < 40; ++i) {
    const auto may_end = matcher->Mask(words);
    fuzz::Accept(may_end.status());
    if (!may_end.ok()) return;
    std::vector<int32_t> ids;
    for (int32_t id = 1; id < Vocabulary().n_logits(); ++id) {
      if ((words[id / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    if (ids.empty()) {
      if (!*may_end) std::abort();
      return;
    }
    // The matcher must accept every token that its mask allows.
    const absl::Status taken = matcher->Consume({&ids[random() % ids.size()], 1});
    if (absl::IsFailedPrecondition(taken)) std::abort();
    if (!taken.ok()) return;
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto grammar = Vocabulary().Compile({.kind = static_cast<text::GrammarKind>(data[0] % 5),
                                             .text = std::string(fuzz::Text(data + 1, size - 1)),
                                             .any_whitespace = (data[0] & 128) != 0});
  fuzz::Accept(grammar.status());
  if (grammar.ok()) Follow(**grammar, size);
  return 0;
}
