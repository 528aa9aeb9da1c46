// Reads a tool call of DeepSeek's models.
#pragma once

#include <cstdint>
#include <string_view>

#include "router/text/call_reader.h"
#include "router/text/tool_call_reader.h"

namespace stagecoach::router {

inline constexpr std::string_view kDeepSeekCallBegin = "<｜tool▁call▁begin｜>",
                                  kDeepSeekSeparator = "<｜tool▁sep｜>",
                                  kDeepSeekCallEnd = "<｜tool▁call▁end｜>";

// Reads both forms: "f<｜tool▁sep｜>{...}" and "function<｜tool▁sep｜>f\n```json\n{...}\n```",
// between the marks of a call.
class DeepSeekCallReader final : public CallReader {
 public:
  size_t Push(std::string_view text) override;
  bool done() const override { return state_ == State::kDone; }
  bool failed() const override { return state_ == State::kFailed; }

 private:
  enum class State : uint8_t { kBegin, kHead, kName, kArguments, kEnd, kDone, kFailed };

  size_t Step(std::string_view text);
  size_t Begin(std::string_view text);
  size_t Head(std::string_view text);
  size_t Name(std::string_view text);
  size_t Arguments(std::string_view text);
  size_t CallEnd(std::string_view text);
  bool SetName(std::string_view name);

  State state_ = State::kBegin;
  std::string head_;  // before the separator
  JsonValueEnd end_;
};

}  // namespace stagecoach::router
