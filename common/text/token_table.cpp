#include "common/text/token_table.h"

#include <algorithm>

#include "common/text/tokenizer.h"

namespace stagecoach::text {

absl::StatusOr<TokenTable> MakeTokenTable(const Tokenizer& tokenizer, int32_t n_logits,
                                          std::span<const int32_t> eos_ids) {
  const ScTextPieces& pieces = tokenizer.pieces();
  if (pieces.decode == SC_TEXT_DECODE_WHOLE) {
    return absl::FailedPreconditionError(
        "this tokenizer decodes whole sequences, not single tokens: grammars are not supported");
  }
  TokenTable table;
  table.n_logits = n_logits;
  table.offsets.push_back(0);
  for (int32_t id = 0; id < std::min(n_logits, pieces.n_ids); ++id) {
    const uint8_t flags = pieces.flags[id];
    uint8_t kind = SC_GRAMMAR_TOKEN_NONE;
    if ((flags & SC_TEXT_PIECE_KNOWN) != 0) {
      kind =
          (flags & SC_TEXT_PIECE_SPECIAL) != 0 ? SC_GRAMMAR_TOKEN_SPECIAL : SC_GRAMMAR_TOKEN_TEXT;
    }
    table.kinds.push_back(static_cast<char>(kind));
    table.bytes += tokenizer.TokenBytes(id);
    table.offsets.push_back(static_cast<uint32_t>(table.bytes.size()));
  }
  for (const int32_t id : eos_ids) {
    if (id >= 0 && id < n_logits) table.eos_ids.push_back(id);
  }
  return table;
}

}  // namespace stagecoach::text
