// Calls of tools in what a model writes, as its family spells them.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "router/text/tool_call_reader.h"
#include "router/text/tool_family.h"

namespace stagecoach::router {

struct ToolCallPiece {
  uint32_t index = 0;     // of the call
  std::string id, name;   // in the call's first piece
  std::string arguments;  // more of their JSON
};

// Takes the calls out of a text that may be cut anywhere: what is content and what belongs to calls
// does not depend on where. What looked like a call and is none is content, as it was written. One
// thread at a time.
class ToolCallParser {
 public:
  struct Options {
    ToolFamily family = ToolFamily::kJson;
    std::vector<std::string> names;  // of the tools offered: of kJson, others are no calls
    bool parallel = true;            // else the first call is the last
    std::function<std::string()> make_id;
  };
  struct Output {
    std::string content;
    std::vector<ToolCallPiece> calls;
  };

  explicit ToolCallParser(Options options);

  void Push(std::string_view text, Output* out);
  void End(Output* out);  // no text follows

  uint32_t n_calls() const { return n_calls_; }
  // The one call is whole, and what follows is of no interest.
  bool done() const { return !options_.parallel && n_calls_ > 0 && state_ == State::kAfterCall; }

 private:
  enum class State : uint8_t {
    kBeginning,  // kJson: a call may begin the text
    kContent,    // until a marker
    kMarked,     // behind a marker: blanks, then how the calls are written
    kName,       // a bare name, up to its arguments
    kBareArgs,   // arguments behind a bare name
    kCall,       // an object
    kAfterCall,  // what may stand between calls
    kBetween,    // kHermes: blanks, then another marker or content
    kPlain,      // content to the end
    kEnded,      // nothing follows that counts
  };

  // Each takes what it can of held_ and returns whether anything changed, so that it goes on.
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
  void NoCall(Output* out);  // what was taken for a call is content
  void Take(size_t n);       // of held_, as part of a call
  bool IsTool(std::string_view name) const;
  std::string_view marker() const;

  const Options options_;
  State state_;
  std::string held_;      // text not dealt with
  std::string taken_;     // of the call being read, until it is certain to be one
  bool in_list_ = false;  // the calls stand in [ ]
  bool certain_ = false;  // a piece of the call being read is out
  ToolCallReader reader_;
  JsonValueEnd end_;
  uint32_t n_calls_ = 0;
};

}  // namespace stagecoach::router
