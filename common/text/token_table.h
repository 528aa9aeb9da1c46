// The part of a vocabulary that grammars need, in a form that can be sent to another process.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::text {

class Tokenizer;

// Token i has kind kinds[i] (SC_GRAMMAR_TOKEN_*) and bytes [offsets[i], offsets[i + 1]).
struct TokenTable {
  std::string kinds;
  std::vector<uint32_t> offsets;  // [kinds.size() + 1]
  std::string bytes;
  std::vector<int32_t> eos_ids;
  int32_t n_logits = 0;  // vocabulary size of the model; ids from kinds.size() on are padding
};

// `n_logits`: rows of the model's embedding. Tokens and EOS ids outside them are left out.
// FAILED_PRECONDITION if the text of a token depends on its neighbours.
absl::StatusOr<TokenTable> MakeTokenTable(const Tokenizer& tokenizer, int32_t n_logits,
                                          std::span<const int32_t> eos_ids);

}  // namespace stagecoach::text
