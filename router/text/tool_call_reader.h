// One call of a tool, read while the model writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "router/text/json_string.h"

namespace stagecoach::router {

// Finds the end of a JSON value. Not a validator: brackets and strings are followed.
class JsonValueEnd {
 public:
  // Takes the bytes of `text` that belong to the value, which begins at its first byte that is not
  // blank; returns how many.
  size_t Push(std::string_view text);
  bool begun() const { return begun_; }
  bool done() const { return done_; }

 private:
  bool begun_ = false;
  bool done_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool is_scalar_ = false;  // a number or a word, which the byte behind it ends
  int depth_ = 0;
};

// Reads {"name": "f", "arguments": {...}}, in any order, with "parameters" for "arguments", inside
// "function" or not; what else is in it is skipped. Arguments are handed on as they come, once the
// name is known. Arguments that are a JSON string are what the string says.
class ToolCallReader {
 public:
  // From the opening bracket on. Returns how many bytes of `text` belong to the call.
  size_t Push(std::string_view text);

  bool named() const { return named_; }
  const std::string& name() const { return name_; }  // whole once named
  // Arguments that came since the last time; nothing before the name is known.
  std::string TakeArguments() { return named_ ? std::exchange(arguments_, {}) : std::string(); }
  bool done() const { return state_ == State::kDone; }  // the object is closed
  bool failed() const { return state_ == State::kFailed; }

 private:
  enum class State : uint8_t {
    kOpen,
    kKey,
    kKeyString,
    kColon,
    kValue,
    kName,
    kArguments,        // as they stand
    kArgumentsString,  // inside a string
    kSkipped,
    kAfterValue,
    kDone,
    kFailed,
  };
  void Structure(char c);
  void BeginValue(char c);
  size_t Skim(std::string_view text);

  State state_ = State::kOpen;
  int depth_ = 0;  // objects entered: the call, and "function"
  std::string key_;
  std::string name_;
  bool named_ = false;
  std::string arguments_;
  bool has_arguments_ = false;
  JsonStringDecoder string_;
  JsonValueEnd end_;
};

}  // namespace stagecoach::router
