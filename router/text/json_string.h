// The inside of a JSON string, decoded as it comes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace stagecoach::router {

// Text may be cut anywhere, in an escape or a character too. What is decoded is whole UTF-8
// characters: a lone surrogate and what is no UTF-8 become U+FFFD. More tolerant than JSON, as
// models are: line breaks stand for themselves, an unknown escape for its own characters.
class JsonStringDecoder {
 public:
  // Begins a string, after its opening quote.
  void Reset();
  // Decodes up to the closing quote and appends to `out`; returns how many bytes of `text` were
  // taken, the quote included. Not to be called when the string is closed.
  size_t Push(std::string_view text, std::string* out);
  bool closed() const { return closed_; }

 private:
  void TakeEscaped(char c, std::string* out);
  void TakeHex(char c, std::string* out);
  void TakeCodeUnit(uint32_t unit, std::string* out);
  void Settle(std::string* out);  // what waits for more gets none

  bool closed_ = false;
  bool escaped_ = false;    // behind a backslash
  int n_hex_left_ = 0;      // of \uXXXX
  std::string hex_;         // the digits so far
  uint32_t high_ = 0;       // a high surrogate whose low one may follow; 0: none
  std::string open_bytes_;  // of a character that is not whole
};

}  // namespace stagecoach::router
