// A checkpoint's tokenizer: text to token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/text/text_abi.h"

namespace stagecoach::text {

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const TextRange&, const TextRange&) = default;
};

// A rendered chat, and what of it may spell special tokens only as text.
struct RenderedText {
  std::string text;
  // Ascending ranges of `text`: what a person wrote.
  std::vector<TextRange> plain;
  // Where `plain` may lack something: a text that has every special token of the template's and
  // none of a person's.
  std::optional<std::string> control;
};

// Immutable once loaded: any number of threads may use one at the same time. Ids and texts equal
// those of the Hugging Face tokenizers library for the same tokenizer.json, and of transformers for
// the other files.
class Tokenizer {
 public:
  // `model_path`: a .gguf file (tokenizer.ggml.model "llama" or "gpt2"), or a checkpoint folder, of
  // which the first of these is read:
  //   tokenizer.json;
  //   tokenizer.model (SentencePiece, BPE or unigram): a space is put in front as the file or
  //     add_prefix_space says, with "legacy": true behind every special token as well;
  //   tekken.json;
  //   vocab.json and merges.txt, cut into words as tokenizer_class says (GPT-2's or Qwen2's way).
  // Roles, added tokens and add_bos_token/add_eos_token come from tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json where they are; an explicit add_bos_token or
  // add_eos_token wins over what tokenizer.json adds. Takes seconds for a vocabulary of 262k
  // tokens. NotFound names the files that were looked for, those that are there and what to do;
  // InvalidArgument names the file and what is wrong with it.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& model_path);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // Spellings of special tokens in `text` become special tokens. `add_special_tokens`: with what
  // the checkpoint puts around a text, such as BOS. InvalidArgument when `text` is not UTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // Encodes a text with spellings of special tokens as ordinary text inside the ascending ranges
  // `plain`. Adds no special tokens: templates write their own. Added tokens that the checkpoint
  // does not call special stay tokens everywhere, as in transformers' split_special_tokens.
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(std::string_view text,
                                                      std::span<const TextRange> plain) const;

  // The same for a rendered chat. INVALID_ARGUMENT names a special token that has more places in it
  // than in its control: a person wrote it where the template changes what was written, so that it
  // cannot be kept as text.
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(const RenderedText& rendered) const;

  // Ids outside the vocabulary contribute nothing. Bytes that are no UTF-8 become U+FFFD.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // Largest id + 1, added tokens included. A model's embedding may have more rows (padding); one
  // with fewer rows cannot serve this tokenizer.
  int32_t vocab_size() const { return pieces_.n_ids; }

  // The bytes that a token contributes inside a text, with byte-level alphabets and byte fallback
  // resolved; not always whole characters. Empty for an id without a token. Lives as long as the
  // tokenizer.
  std::string_view TokenBytes(int32_t id) const;

  // Whether Decode leaves the token out when it skips special tokens.
  bool IsSpecial(int32_t id) const;

  // By the spelling in the tokenizer's files: "<|im_end|>", but "Ġthe" for " the".
  std::optional<int32_t> TokenId(std::string_view piece) const;

  // Empty when the checkpoint names none.
  const std::string& bos_token() const { return bos_token_; }
  const std::string& eos_token() const { return eos_token_; }
  const std::string& unk_token() const { return unk_token_; }
  const std::string& pad_token() const { return pad_token_; }

  // The tables that TokenStream works on; they live as long as the tokenizer.
  const ScTextPieces& pieces() const { return pieces_; }

 private:
  explicit Tokenizer(ScTextTokenizer* handle);
  std::string Role(const char* role) const;
  absl::StatusOr<std::vector<int32_t>> EncodeWith(std::string_view text,
                                                  std::span<const TextRange> plain,
                                                  bool add_special_tokens) const;

  ScTextTokenizer* const handle_;  // owned
  ScTextPieces pieces_;
  std::string bos_token_;
  std::string eos_token_;
  std::string unk_token_;
  std::string pad_token_;
};

}  // namespace stagecoach::text
