// Reads one tool call while the model writes it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "router/text/json_string.h"

namespace stagecoach::router {

// Finds the end of a JSON value. Not a validator: it only tracks brackets and strings.
class JsonValueEnd {
 public:
  // Consumes the bytes of `text` that belong to the value, which begins at the first byte that is
  // not blank. Returns their number.
  size_t Push(std::string_view text);
  bool begun() const { return begun_; }
  bool done() const { return done_; }

 private:
  bool begun_ = false;
  bool done_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  bool is_scalar_ = false;  // a number or literal, which the next byte after it ends
  int depth_ = 0;
};

// Reads {"name": "f", "arguments": {...}}, in any order, with "parameters" for "arguments", and
// inside "function" or not; skips all other members. Returns arguments as they come, once the name
// is known. Arguments that are a JSON string are decoded.
class ToolCallReader {
 public:
  // `text` starts at the opening bracket. Returns the number of bytes that belong to the call.
  size_t Push(std::string_view text);

  bool named() const { return named_; }
  const std::string& name() const { return name_; }  // complete once named() is true
  // Arguments since the last call; empty until the name is known.
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
    kArguments,        // copied as written
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
  int depth_ = 0;  // open objects: the call, and "function"
  std::string key_;
  std::string name_;
  bool named_ = false;
  std::string arguments_;
  bool has_arguments_ = false;
  JsonStringDecoder string_;
  JsonValueEnd end_;
};

}  // namespace stagecoach::router
