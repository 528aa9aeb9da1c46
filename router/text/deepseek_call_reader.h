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

// What a DeepSeekCallReader reads.
enum class DeepSeekCallState : uint8_t { kBegin, kHead, kName, kArguments, kEnd, kDone, kFailed };

// Reads both forms: "f<｜tool▁sep｜>{...}" and "function<｜tool▁sep｜>f\n```json\n{...}\n```",
// between the marks of a call.
class DeepSeekCallReader final : public SteppedCallReader<DeepSeekCallState> {
 public:
  DeepSeekCallReader() : SteppedCallReader(State::kBegin) {}

 private:
  using State = DeepSeekCallState;

  size_t Step(std::string_view text) override;
  size_t Begin(std::string_view text);
  size_t Head(std::string_view text);
  size_t Name(std::string_view text);
  size_t Arguments(std::string_view text);
  size_t CallEnd(std::string_view text);
  bool SetName(std::string_view name);

  std::string head_;  // before the separator
  JsonValueEnd end_;
};

}  // namespace stagecoach::router
