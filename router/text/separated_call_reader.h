// Reads a tool call in which a mark separates the name from JSON arguments.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "router/text/call_reader.h"
#include "router/text/tool_call_reader.h"
#include "router/text/tool_family.h"

namespace stagecoach::router {

// The marks of one family.
struct SeparatedForm {
  std::string_view call_begin, separator, call_end;
  bool has_id = false;  // an id is before the separator, and the name in the id: functions.f:0
};

// REQUIRES: one of the families with a separator.
const SeparatedForm& SeparatedFormOf(ToolFamily family);

// What a SeparatedCallReader reads.
enum class SeparatedCallState : uint8_t { kBegin, kHead, kName, kArguments, kEnd, kDone, kFailed };

// Reads a call between its marks. Without an id, reads both of DeepSeek's forms:
// "f<｜tool▁sep｜>{...}" and "function<｜tool▁sep｜>f\n```json\n{...}\n```".
class SeparatedCallReader final : public SteppedCallReader<SeparatedCallState> {
 public:
  // `form` outlives the reader.
  explicit SeparatedCallReader(const SeparatedForm* form)
      : SteppedCallReader(State::kBegin), form_(*form) {}

 private:
  using State = SeparatedCallState;

  size_t Step(std::string_view text) override;
  size_t Begin(std::string_view text);
  size_t Head(std::string_view text);
  size_t Name(std::string_view text);
  size_t Arguments(std::string_view text);
  size_t CallEnd(std::string_view text);
  bool SetName(std::string_view name);

  const SeparatedForm& form_;
  std::string head_;  // before the separator
  JsonValueEnd end_;
};

}  // namespace stagecoach::router
