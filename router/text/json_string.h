// Decodes the inside of a JSON string incrementally.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stagecoach::router {

// The input may be cut anywhere, also inside an escape or a character. The output is whole UTF-8
// characters: a lone surrogate and invalid UTF-8 become U+FFFD. More tolerant than JSON, because
// models make mistakes: line breaks stand for themselves, and an unknown escape for its own
// characters.
class JsonStringDecoder {
 public:
  // Begins a string, after its opening quote.
  void Reset();
  // Decodes up to the closing quote and appends to `out`. Returns the number of consumed bytes of
  // `text`, including the quote. Do not call it after the string is closed.
  size_t Push(std::string_view text, std::string* out);
  bool closed() const { return closed_; }

 private:
  void TakeEscaped(char c, std::string* out);
  void TakeHex(char c, std::string* out);
  void TakeCodeUnit(uint32_t unit, std::string* out);
  void Settle(std::string* out);  // replaces an incomplete character or surrogate by U+FFFD

  bool closed_ = false;
  bool escaped_ = false;    // after a backslash
  int n_hex_left_ = 0;      // hex digits left of \uXXXX
  std::string hex_;         // the digits so far
  uint32_t high_ = 0;       // a high surrogate that waits for its low one; 0: none
  std::string open_bytes_;  // bytes of an incomplete character
};

}  // namespace stagecoach::router
