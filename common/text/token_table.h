// What grammars need to know of a vocabulary, in a form that travels.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::text {

class Tokenizer;

// Token i is kinds[i] (SC_GRAMMAR_TOKEN_*) and bytes [offsets[i], offsets[i + 1]).
struct TokenTable {
  std::string kinds;
  std::vector<uint32_t> offsets;  // [kinds.size() + 1]
  std::string bytes;
  std::vector<int32_t> eos_ids;
  int32_t n_logits = 0;  // the model's vocabulary; ids from kinds.size() on are padding
};

// `n_logits`: rows of the model's embedding; tokens beyond them are left out, as are EOS ids
// outside of it. FAILED_PRECONDITION when a token's text is not its own but depends on those
// beside it.
absl::StatusOr<TokenTable> MakeTokenTable(const Tokenizer& tokenizer, int32_t n_logits,
                                          std::span<const int32_t> eos_ids);

}  // namespace stagecoach::text
