#include "common/text/tokenizer.h"

#include <fmt/format.h>

#include <map>
#include <type_traits>

#include "common/status.h"
#include "common/text/abi_status.h"
#include "common/text/gguf_text.h"

namespace stagecoach::text {

static_assert(sizeof(TextRange) == sizeof(ScTextRange) &&
              offsetof(TextRange, end) == offsetof(ScTextRange, end) &&
              std::is_standard_layout_v<TextRange>);

absl::StatusOr<std::shared_ptr<const Tokenizer>> Tokenizer::Load(const std::string& model_path) {
  ScTextTokenizer* handle = nullptr;
  if (IsGguf(model_path)) {
    SC_ASSIGN_OR_RETURN(handle, LoadGgufTokenizer(model_path));
  } else {
    ErrorBuffer error{};
    const int32_t code =
        sc_text_tokenizer_load(model_path.c_str(), &handle, error.data(), error.size());
    if (code != 0) return AbiStatus(code, error);
  }
  return std::shared_ptr<const Tokenizer>(new Tokenizer(handle));
}

Tokenizer::Tokenizer(ScTextTokenizer* handle) : handle_(handle) {
  sc_text_tokenizer_pieces(handle_, &pieces_);
  bos_token_ = Role("bos_token");
  eos_token_ = Role("eos_token");
  unk_token_ = Role("unk_token");
  pad_token_ = Role("pad_token");
}

Tokenizer::~Tokenizer() { sc_text_tokenizer_free(handle_); }

std::string Tokenizer::Role(const char* role) const {
  const char* text = nullptr;
  size_t size = 0;
  sc_text_tokenizer_role(handle_, role, &text, &size);
  return std::string(text, size);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(std::string_view text,
                                                       bool add_special_tokens) const {
  return EncodeWith(text, {}, add_special_tokens);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeRendered(
    std::string_view text, std::span<const TextRange> plain) const {
  return EncodeWith(text, plain, /*add_special_tokens=*/false);
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeRendered(const RenderedText& rendered) const {
  SC_ASSIGN_OR_RETURN(std::vector<int32_t> ids, EncodeRendered(rendered.text, rendered.plain));
  if (!rendered.control) return ids;
  SC_ASSIGN_OR_RETURN(const std::vector<int32_t> control, Encode(*rendered.control, false));
  std::map<int32_t, int> n_more;
  for (const int32_t id : ids) n_more[id] += IsSpecial(id);
  for (const int32_t id : control) n_more[id] -= IsSpecial(id);
  for (const auto& [id, n] : n_more) {
    if (n <= 0) continue;
    return absl::InvalidArgumentError(fmt::format(
        "a message contains the special token {} in a place that the chat template changes, so it "
        "cannot be kept as plain text: remove it or write it differently",
        TokenBytes(id)));
  }
  return ids;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodeWith(std::string_view text,
                                                           std::span<const TextRange> plain,
                                                           bool add_special_tokens) const {
  ErrorBuffer error{};
  // A token takes at least one byte of the normalized text, so a second iteration is rare.
  std::vector<int32_t> ids(text.size() + 16);
  while (true) {
    size_t n_ids = 0;
    const int32_t code = sc_text_encode(handle_, text.data(), text.size(),
                                        reinterpret_cast<const ScTextRange*>(plain.data()),
                                        plain.size(), add_special_tokens, ids.data(), ids.size(),
                                        &n_ids, error.data(), error.size());
    if (code != 0 && !IsTooSmall(code)) return AbiStatus(code, error);
    ids.resize(n_ids);
    if (code == 0) return ids;
  }
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const int32_t> ids,
                                              bool skip_special_tokens) const {
  ErrorBuffer error{};
  std::string text(ids.size() * 8 + 64, '\0');
  while (true) {
    size_t size = 0;
    const int32_t code =
        sc_text_decode(handle_, ids.data(), ids.size(), skip_special_tokens, text.data(),
                       text.size(), &size, error.data(), error.size());
    if (code != 0 && !IsTooSmall(code)) return AbiStatus(code, error);
    text.resize(size);
    if (code == 0) return text;
  }
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= pieces_.n_ids) return {};
  const uint32_t begin = pieces_.offsets[id];
  return {reinterpret_cast<const char*>(pieces_.bytes) + begin, pieces_.offsets[id + 1] - begin};
}

bool Tokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && id < pieces_.n_ids && (pieces_.flags[id] & SC_TEXT_PIECE_SPECIAL) != 0;
}

std::optional<int32_t> Tokenizer::TokenId(std::string_view piece) const {
  const int32_t id = sc_text_tokenizer_id(handle_, piece.data(), piece.size());
  if (id < 0) return std::nullopt;
  return id;
}

}  // namespace stagecoach::text
