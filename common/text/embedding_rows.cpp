#include "common/text/embedding_rows.h"

#include <fmt/format.h>

#include <string>

namespace stagecoach::text {

absl::Status CheckEmbeddingRows(const Tokenizer& tokenizer, int32_t n_rows) {
  constexpr int kMaxNamed = 5;
  std::string named;
  int n_outside = 0;
  for (int32_t id = n_rows; id < tokenizer.vocab_size(); ++id) {
    const uint8_t flags = tokenizer.pieces().flags[id];
    if ((flags & SC_TEXT_PIECE_KNOWN) == 0) continue;
    constexpr uint8_t kSpecialMedia = SC_TEXT_PIECE_SPECIAL | SC_TEXT_PIECE_OTHER_MEDIA;
    if ((flags & kSpecialMedia) == kSpecialMedia) continue;
    if (n_outside++ >= kMaxNamed) continue;
    named += fmt::format("{}{} (\"{}\")", named.empty() ? "" : ", ", id, tokenizer.TokenBytes(id));
  }
  if (n_outside == 0) return absl::OkStatus();
  if (n_outside > kMaxNamed) named += fmt::format(" and {} more", n_outside - kMaxNamed);
  return absl::InvalidArgumentError(fmt::format(
      "the tokenizer has {} ids, the embedding (config.json's vocab_size) {} rows: no row for {}. "
      "Resize the model and save it (model.resize_token_embeddings({})), or remove {} from the "
      "tokenizer's added tokens",
      tokenizer.vocab_size(), n_rows, named, tokenizer.vocab_size(),
      n_outside == 1 ? "that token" : "those tokens"));
}

}  // namespace stagecoach::text
