// Finds tool calls in a model's output, in the format of its family.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/text/tool_call_reader.h"
#include "router/text/tool_family.h"

namespace stagecoach::router {

struct ToolCallPiece {
  uint32_t index = 0;     // index of the tool call
  std::string id, name;   // only in the call's first piece
  std::string arguments;  // next piece of the JSON text
};

// Separates tool calls from content in a text that may be cut anywhere; the result does not depend
// on where. Text that looked like a call but is none becomes content, as written. So does text
// after a call, without the blanks and separators that follow the call; except for kHermes, no more
// calls are read after such text. Dropped are only the rest after a call with broken JSON and, for
// kHermes, text between a call and its end tag. One thread at a time.
class ToolCallParser {
 public:
  struct Options {
    ToolFamily family = ToolFamily::kJson;
    std::vector<std::string> names;  // names of the offered tools; kJson: other names are not calls
    bool parallel = true;            // false: the first call is the last
  };
  struct Output {
    std::string content;
    std::vector<ToolCallPiece> calls;
  };

  // The ids of the calls depend only on `id_key` and the calls' order.
  ToolCallParser(Options options, std::string id_key);

  void Push(std::string_view text, Output* out);
  void End(Output* out);  // no text follows

  uint32_t n_calls() const { return n_calls_; }
  // The only allowed call is complete; ignore further text.
  bool done() const { return !options_.parallel && n_calls_ > 0 && state_ == State::kAfterCall; }

 private:
  enum class State : uint8_t {
    kBeginning,  // kJson: a call may begin the text
    kContent,    // until a marker
    kMarked,     // after a marker: blanks, then the calls
    kName,       // a bare name, up to its arguments
    kBareArgs,   // arguments after a bare name
    kCall,       // a call as an object
    kAfterCall,  // separators after a call
    kBetween,    // kHermes: blanks, then another marker or content
    kPlain,      // content to the end
    kEnded,      // ignore the rest: broken JSON, or the end
  };

  // Each consumes what it can of held_, and returns whether anything changed, so that Step runs
  // again.
  bool Step(Output* out);
  bool Beginning();
  bool Content(Output* out);
  bool Marked(Output* out);
  bool Name(Output* out);
  bool BareArgs(Output* out);
  bool Call(Output* out);
  bool AfterCall();
  bool Between();

  void BeginCall(std::string name, Output* out);
  void PassArguments(std::string arguments, Output* out);
  void NoCall(Output* out);  // the text read as a call becomes content
  void Take(size_t n);       // moves n bytes of held_ to the call
  bool IsTool(std::string_view name) const;
  std::string_view marker() const;

  const Options options_;
  const std::string id_key_;
  State state_;
  std::string held_;      // text not processed yet
  std::string taken_;     // text of the current call, until it is certain to be a call
  bool in_list_ = false;  // the calls are in [ ]
  bool certain_ = false;  // a piece of the current call was returned
  ToolCallReader reader_;
  JsonValueEnd end_;
  uint32_t n_calls_ = 0;
};

}  // namespace stagecoach::router
