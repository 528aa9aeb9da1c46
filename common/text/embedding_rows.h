// Checks that a model's embedding has a row for every token of its tokenizer.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/text/tokenizer.h"

namespace stagecoach::text {

// INVALID_ARGUMENT names the tokens that have no row in an embedding of `n_rows`, and the fix. A
// fine-tune that added a token without resizing the embedding would otherwise read past its end.
// More rows than tokens are padding and are accepted.
//
// One kind of token may lack its row: a special token to which tokenizer_config.json gives a role
// of another medium (image_token, boi_token, audio_token and so on: any role except bos, eos, unk,
// sep, pad, cls and mask). Text checkpoints of multimodal families contain such tokens without rows
// (Gemma-3's <image_soft_token> is id 262144 of 262144 rows). No text model generates one, and a
// request that contains one is refused on its own. "pad_token" is not such a role: a pad token
// added for training is the most common cause of token 32,769 in a model of 32,768 rows.
absl::Status CheckEmbeddingRows(const Tokenizer& tokenizer, int32_t n_rows);

}  // namespace stagecoach::text
