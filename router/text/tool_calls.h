// Finds tool calls in a model's output, in the format of its family.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "router/text/call_reader.h"
#include "router/text/tool_call_reader.h"
#include "router/text/tool_family.h"
#include "router/text/tool_schemas.h"

namespace stagecoach::router {

struct ToolCallPiece {
  uint32_t index = 0;     // index of the tool call
  std::string id, name;   // only in the call's first piece
  std::string arguments;  // next piece of the JSON text
};

struct ToolCallOptions {
  ToolFamily family = ToolFamily::kJson;
  // The offered tools. kJson and kPythonic: other names are not calls. Families with tags: schemas
  // decide the types of arguments.
  ToolSchemas tools = nullptr;
  bool parallel = true;  // false: the first call is the last
  // The number of the answer's first call in the conversation, for MakeToolCallId.
  uint32_t first_number = 0;
};

// Separates tool calls from content in a text that may be cut anywhere; the result does not depend
// on where. Text that looked like a call but is none becomes content, as written. So does text
// after a call, without the blanks and separators that follow the call; only families that mark
// each call or all calls read more calls after such text. A call that breaks after its name ends
// there. The rest then is text if the family marks the ends of calls, and dropped if it does not.
// Also dropped is, for kHermes, text between a call and its end tag. kHarmony: see HarmonyReader.
// One thread at a time.
class ToolCallParser {
 public:
  using Options = ToolCallOptions;
  struct Output {
    std::string content;
    std::vector<ToolCallPiece> calls;
  };

  // The ids of the calls depend only on `id_key`, the options, and the calls' order and names.
  ToolCallParser(Options options, std::string id_key);

  void Push(std::string_view text, Output* out);
  void End(Output* out);  // no text follows

  uint32_t n_calls() const { return n_calls_; }
  // The only allowed call is complete; ignore further text.
  bool done() const { return !options_.parallel && n_calls_ > 0 && state_ == State::kAfterCall; }

 private:
  enum class State : uint8_t {
    kBeginning,  // kJson and kPythonic: a call may begin the text
    kContent,    // until a marker
    kMarked,     // after a marker: blanks, then the calls
    kName,       // a bare name, up to its arguments
    kBareArgs,   // arguments after a bare name
    kCall,       // in a call's reader
    kAfterCall,  // separators or end mark after a call
    kBetween,    // after an end mark: blanks, then another marker or content
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
  bool AfterMarkedCall();
  bool InList();
  bool Between();

  void BeginCall(std::string name, Output* out);
  void PassArguments(std::string arguments, Output* out);
  void NoCall(Output* out);  // the text read as a call becomes content
  void Take(size_t n);       // moves n bytes of held_ to the call
  bool IsTool(std::string_view name) const;
  // A reader for the call that begins with `c`; null: no call does.
  std::unique_ptr<CallReader> MakeReader(char c) const;
  bool by_name() const;  // only names of tools make calls

  const Options options_;
  const struct Marks& marks_;  // of the family
  const std::string id_key_;
  State state_;
  std::string held_;      // text not processed yet
  std::string taken_;     // text of the current call, until it is certain to be a call
  bool in_list_ = false;  // the calls are in [ ]
  bool certain_ = false;  // a piece of the current call was returned
  std::unique_ptr<CallReader> reader_;
  JsonValueEnd end_;
  uint32_t n_calls_ = 0;
};

}  // namespace stagecoach::router
