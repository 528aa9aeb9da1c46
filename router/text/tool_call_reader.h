// Reads a tool call that is a JSON object.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "router/text/call_reader.h"
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
class ToolCallReader final : public CallReader {
 public:
  // `text` starts at the opening bracket.
  size_t Push(std::string_view text) override;
  bool done() const override { return state_ == State::kDone; }  // the object is closed
  bool failed() const override { return state_ == State::kFailed; }

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
  bool has_arguments_ = false;
  JsonStringDecoder string_;
  JsonValueEnd end_;
};

}  // namespace stagecoach::router
