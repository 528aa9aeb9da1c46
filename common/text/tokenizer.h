// A checkpoint's tokenizer: converts text to token ids and back.
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

// A rendered chat, and the parts of it in which special tokens must be encoded as ordinary text.
struct RenderedText {
  std::string text;
  // Text that a person wrote: ascending ranges of `text`.
  std::vector<TextRange> plain;
  // Set if `plain` may be incomplete: a text that contains every special token of the template and
  // none that a person wrote.
  std::optional<std::string> control;
};

// Immutable once loaded: any number of threads may use one object at the same time. Ids and texts
// equal those of the Hugging Face tokenizers library for a tokenizer.json, and of transformers for
// the other files.
class Tokenizer {
 public:
  // `model_path`: a .gguf file (tokenizer.ggml.model "llama" or "gpt2"), or a checkpoint folder.
  // From a folder, the first of these files is read:
  //   tokenizer.json;
  //   tokenizer.model (SentencePiece, BPE or unigram): the file or add_prefix_space decides whether
  //     a space is put in front; with "legacy": true also after every special token;
  //   tekken.json;
  //   vocab.json and merges.txt: tokenizer_class decides how words are split (GPT-2 or Qwen2).
  // Roles, added tokens and add_bos_token/add_eos_token come from tokenizer_config.json,
  // special_tokens_map.json and added_tokens.json if present. An explicit add_bos_token or
  // add_eos_token overrides what tokenizer.json adds. Takes seconds for a vocabulary of 262k
  // tokens. NotFound names the files searched, the files present and the fix. InvalidArgument names
  // the file and the problem.
  static absl::StatusOr<std::shared_ptr<const Tokenizer>> Load(const std::string& model_path);

  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  ~Tokenizer();

  // Spellings of special tokens in `text` become special tokens. `add_special_tokens` adds the
  // tokens that the checkpoint puts around a text, such as BOS. InvalidArgument if `text` is not
  // UTF-8.
  absl::StatusOr<std::vector<int32_t>> Encode(std::string_view text, bool add_special_tokens) const;

  // Encodes `text`. Inside the ascending ranges `plain`, spellings of special tokens are ordinary
  // text. Adds no special tokens, because templates write their own. Added tokens that the
  // checkpoint does not mark as special stay tokens everywhere, like with split_special_tokens in
  // transformers.
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(std::string_view text,
                                                      std::span<const TextRange> plain) const;

  // The same for a rendered chat. INVALID_ARGUMENT names a special token that occurs more often in
  // the text than in its control: a person wrote it, and the template changes it, so it cannot be
  // kept as text.
  absl::StatusOr<std::vector<int32_t>> EncodeRendered(const RenderedText& rendered) const;

  // Ids outside the vocabulary contribute nothing. Bytes that are not UTF-8 become U+FFFD.
  absl::StatusOr<std::string> Decode(std::span<const int32_t> ids, bool skip_special_tokens) const;

  // Largest id + 1, including added tokens. A model's embedding may have more rows (padding). A
  // model with fewer rows cannot use this tokenizer.
  int32_t vocab_size() const { return pieces_.n_ids; }

  // The bytes that a token contributes inside a text, after resolving byte-level alphabets and byte
  // fallback. They may be part of a character. Empty for an id without a token. Valid as long as
  // the tokenizer.
  std::string_view TokenBytes(int32_t id) const;

  // Whether Decode leaves the token out when it skips special tokens.
  bool IsSpecial(int32_t id) const;

  // Looks up a token by its spelling in the tokenizer's files: "<|im_end|>", but "Ġthe" for " the".
  std::optional<int32_t> TokenId(std::string_view piece) const;

  // Each is empty if the checkpoint does not name it.
  const std::string& bos_token() const { return bos_token_; }
  const std::string& eos_token() const { return eos_token_; }
  const std::string& unk_token() const { return unk_token_; }
  const std::string& pad_token() const { return pad_token_; }

  // The tables that TokenStream uses. Valid as long as the tokenizer.
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
