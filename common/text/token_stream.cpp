#include "common/text/token_stream.h"

#include <algorithm>
#include <utility>

#include "common/text/utf8.h"

namespace stagecoach::text {

TokenStream::TokenStream(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens,
                         std::vector<int32_t> shown)
    : tokenizer_(std::move(tokenizer)),
      skip_special_tokens_(skip_special_tokens),
      shown_(std::move(shown)),
      n_strip_left_(tokenizer_->pieces().n_strip) {}

std::string TokenStream::Push(int32_t id) {
  const ScTextPieces& pieces = tokenizer_->pieces();
  std::string out;
  if (id < 0 || id >= pieces.n_ids) return out;
  const uint8_t flags = pieces.flags[id];
  if ((flags & SC_TEXT_PIECE_KNOWN) == 0) return out;
  if (skip_special_tokens_ && (flags & SC_TEXT_PIECE_SPECIAL) != 0 &&
      std::find(shown_.begin(), shown_.end(), id) == shown_.end()) {
    return out;
  }
  switch (pieces.decode) {
    case SC_TEXT_DECODE_BYTES:
      pending_ += tokenizer_->TokenBytes(id);
      TakeUtf8(pending_, out);
      break;
    case SC_TEXT_DECODE_TEXT:
      PushText(id, flags, out);
      break;
    default:
      held_ids_.push_back(id);
  }
  return out;
}

void TokenStream::PushText(int32_t id, uint8_t flags, std::string& out) {
  const ScTextPieces& pieces = tokenizer_->pieces();
  std::string_view piece = tokenizer_->TokenBytes(id);
  if (std::exchange(first_, false) && pieces.first_offsets != nullptr) {
    const uint32_t begin = pieces.first_offsets[id];
    piece = {reinterpret_cast<const char*>(pieces.first_bytes) + begin,
             pieces.first_offsets[id + 1] - begin};
  }
  if ((flags & SC_TEXT_PIECE_BYTE) != 0) {
    pending_ += piece;
    return;
  }
  EndByteRun(out);
  AppendStripped(piece, out);
}

void TokenStream::EndByteRun(std::string& out) {
  if (pending_.empty()) return;
  if (IsUtf8(pending_)) {
    AppendStripped(pending_, out);
  } else {
    // Like the library's ByteFallback: one invalid byte turns every byte of the run into U+FFFD.
    for (size_t i = 0; i < pending_.size(); ++i) AppendStripped(kReplacement, out);
  }
  pending_.clear();
}

void TokenStream::AppendStripped(std::string_view piece, std::string& out) {
  while (n_strip_left_ > 0 && !piece.empty()) {
    if (static_cast<uint8_t>(piece.front()) != tokenizer_->pieces().strip_byte) {
      n_strip_left_ = 0;
      break;
    }
    piece.remove_prefix(1);
    --n_strip_left_;
  }
  out += piece;
}

std::string TokenStream::Flush() {
  std::string out;
  switch (tokenizer_->pieces().decode) {
    case SC_TEXT_DECODE_BYTES:
      if (!pending_.empty()) out = kReplacement;
      break;
    case SC_TEXT_DECODE_TEXT:
      EndByteRun(out);
      break;
    default:
      out = tokenizer_->Decode(held_ids_, skip_special_tokens_).value_or("");
  }
  pending_.clear();
  held_ids_.clear();
  first_ = true;
  n_strip_left_ = tokenizer_->pieces().n_strip;
  return out;
}

}  // namespace stagecoach::text
