#include "router/text/json_string.h"

#include <algorithm>

#include "common/text/utf8.h"

namespace stagecoach::router {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  const auto put = [out](uint32_t byte) { *out += static_cast<char>(byte); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

}  // namespace

void JsonStringDecoder::Reset() { *this = JsonStringDecoder(); }

size_t JsonStringDecoder::Push(std::string_view text, std::string* out) {
  size_t at = 0;
  while (at < text.size() && !closed_) {
    const char c = text[at];
    if (n_hex_left_ > 0 && HexDigit(c) >= 0) {
      TakeHex(c, out);
      ++at;
    } else if (n_hex_left_ > 0) {
      // Not an escape after all; `c` is read as an ordinary character.
      Settle(out);
      *out += "\\u" + hex_;
      n_hex_left_ = 0;
    } else if (escaped_) {
      TakeEscaped(c, out);
      ++at;
    } else if (c == '\\') {
      escaped_ = true;
      ++at;
    } else if (c == '"') {
      Settle(out);
      closed_ = true;
      ++at;
    } else {
      if (high_ != 0) Settle(out);
      const size_t end = std::min(text.find_first_of("\"\\", at), text.size());
      open_bytes_ += text.substr(at, end - at);
      text::TakeUtf8(open_bytes_, *out);
      at = end;
    }
  }
  return at;
}

void JsonStringDecoder::TakeEscaped(char c, std::string* out) {
  escaped_ = false;
  if (c == 'u') {
    n_hex_left_ = 4;
    hex_.clear();
    return;
  }
  Settle(out);
  constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
  const size_t i = kNames.find(c);
  if (i != std::string_view::npos) {
    *out += kMeanings[i];
  } else {
    *out += '\\';
    open_bytes_ = c;  // may be the first byte of a character
    text::TakeUtf8(open_bytes_, *out);
  }
}

void JsonStringDecoder::TakeHex(char c, std::string* out) {
  hex_ += c;
  if (--n_hex_left_ > 0) return;
  uint32_t unit = 0;
  for (const char digit : hex_) unit = unit * 16 + static_cast<uint32_t>(HexDigit(digit));
  TakeCodeUnit(unit, out);
}

void JsonStringDecoder::TakeCodeUnit(uint32_t unit, std::string* out) {
  const bool is_low = unit >= 0xDC00 && unit < 0xE000;
  if (high_ != 0 && is_low) {
    AppendUtf8(0x10000 + ((high_ - 0xD800) << 10) + (unit - 0xDC00), out);
    high_ = 0;
    return;
  }
  Settle(out);
  if (unit >= 0xD800 && unit < 0xDC00) {
    high_ = unit;
  } else if (is_low) {
    *out += text::kReplacement;
  } else {
    AppendUtf8(unit, out);
  }
}

void JsonStringDecoder::Settle(std::string* out) {
  if (high_ != 0 || !open_bytes_.empty()) *out += text::kReplacement;
  high_ = 0;
  open_bytes_.clear();
}

}  // namespace stagecoach::router
