// Reads a tool call whose arguments are in tags of their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "router/text/argument_types.h"
#include "router/text/call_reader.h"
#include "router/text/tool_family.h"
#include "router/text/tool_schemas.h"

namespace stagecoach::router {

// The tags of one family.
struct XmlForm {
  std::string_view call_begin;  // before the name
  std::string_view name_end;    // behind the name; "": a line break, or before the next tag
  std::string_view key_begin;   // around an argument's name
  std::string_view key_end;
  std::string_view value_begin;  // "": the value follows key_end
  std::string_view value_end;
  std::string_view call_end;  // "": the call ends before the end tag around it
  bool on_lines = false;      // a line break on either side of a value is not part of it
  bool may_join = false;      // some models of the family write no line breaks between tags
};

// REQUIRES: one of the families with tags.
const XmlForm& XmlFormOf(ToolFamily family);

// What a XmlCallReader reads.
enum class XmlCallState : uint8_t {
  kBegin,
  kName,
  kMembers,  // before an argument or the end
  kKey,
  kValueBegin,  // before value_begin
  kValue,
  kDone,
  kFailed,
};

// Gives arguments as one JSON object. Strings are given while they come; other values, and those
// that the schema lets be strings or something else, at their end.
class XmlCallReader final : public SteppedCallReader<XmlCallState> {
 public:
  // `form` and `end_tag` outlive the reader. `end_tag`: the tag behind calls of a form without
  // call_end.
  XmlCallReader(const XmlForm* form, std::string_view end_tag, ToolSchemas schemas)
      : SteppedCallReader(State::kBegin),
        form_(*form),
        end_tag_(end_tag),
        schemas_(std::move(schemas)) {}

  void End(std::string_view rest) override;

 private:
  using State = XmlCallState;
  // Each consumes part of `text` and returns the number of its bytes; 0: more text is needed, or
  // the state changed.
  size_t Step(std::string_view text) override;
  size_t Begin(std::string_view text);
  size_t Name(std::string_view text);
  size_t Members(std::string_view text);
  size_t Key(std::string_view text);
  size_t Value(std::string_view text);

  void Fail();
  void BeginValue();
  void AddValue(std::string_view text);
  void EndValue();

  const XmlForm& form_;
  const std::string_view end_tag_;
  const ToolSchemas schemas_;
  std::optional<ArgumentTypes> types_;  // absent: the tool is unknown
  JsonTypes type_ = kJsonAny;           // of the value being read
  bool has_member_ = false;
  bool at_value_begin_ = false;
  std::string value_;  // text that is not given yet
};

}  // namespace stagecoach::router
