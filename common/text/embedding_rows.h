// Whether a model's embedding holds its tokenizer's vocabulary.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {

// INVALID_ARGUMENT names the tokens whose ids have no row in an embedding of `n_rows`, and the fix:
// a fine-tune that added a token without resizing reads past its end. More rows than tokens are
// padding, and fine.
//
// One kind of token may lack its row: special ones that tokenizer_config.json gives a role of
// another medium (image_token, boi_token, audio_token ...: any but bos, eos, unk, sep, pad, cls and
// mask). Text checkpoints of multimodal families carry them without rows (Gemma-3's
// <image_soft_token> is id 262144 of 262144 rows) and no text model writes one; a request that does
// is refused by itself. "pad_token" is no such role: a pad token added for training is the
// commonest way to the 32,769th token of 32,768 rows.
absl::Status CheckEmbeddingRows(const Tokenizer& tokenizer, int32_t n_rows);

}  // namespace stagecoach::text
