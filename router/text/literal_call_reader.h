// Reads a tool call that is written like a call in a program: f(a=1, b="x").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "router/text/call_reader.h"

namespace stagecoach::router {

enum class LiteralForm : uint8_t {
  kPython,  // f(a=1, b="x", c=[True, {"k": None}])
  kGemma,   // call:f{a:1,b:<|"|>x<|"|>,c:[true,{k:null}]}
};

// What a LiteralCallReader reads.
enum class LiteralCallState : uint8_t {
  kName,
  kKeyOrEnd,  // behind an opening bracket of members
  kKey,
  kKeyWord,  // inside a key without quotes
  kColon,    // before what separates a key from its value
  kItemOrEnd,
  kValue,
  kWord,    // inside a number or literal
  kString,  // inside a string, which may be a key
  kAfterValue,
  kDone,
  kFailed,
};

// Gives arguments as one JSON object, piece by piece. Values may be nested; their literals may have
// JSON's or Python's spelling. A word that is no literal becomes a string.
class LiteralCallReader final : public SteppedCallReader<LiteralCallState> {
 public:
  explicit LiteralCallReader(LiteralForm form)
      : SteppedCallReader(State::kName), is_gemma_(form == LiteralForm::kGemma) {}

  void End(std::string_view rest) override;

 private:
  using State = LiteralCallState;

  // Each consumes the byte `c`, or part of `text`, and returns the number of bytes; 0: more text is
  // needed, or the state changed.
  size_t Step(std::string_view text) override;
  size_t Name(std::string_view text);
  size_t Key(std::string_view text);
  size_t KeyWord(std::string_view text);
  size_t Value(std::string_view text);
  size_t Word(std::string_view text);
  size_t String(std::string_view text);
  size_t PythonString(std::string_view text);
  size_t AfterValue(char c);

  // Length of the quote that `text` begins with; 0: none; npos: more text is needed.
  size_t QuoteBytes(std::string_view text) const;
  bool IsKeyByte(char c) const;  // of a key without quotes
  void BeginString(char quote);
  void EndWord();
  void Open(char c);
  void Close();
  void Separate();
  void Fail();

  const bool is_gemma_;
  std::string stack_;       // open brackets
  bool is_key_ = false;     // the string is a key
  bool has_comma_ = false;  // and nothing has come behind it
  char quote_ = 0;          // kPython: ends the string
  std::string word_;
};

}  // namespace stagecoach::router
