// Ids of tool calls, in forms that the families' templates accept.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "router/text/tool_family.h"

namespace stagecoach::router {

// An id for a new call of the tool `name`. It depends only on the arguments. `number`: the call's
// place in its conversation, from 0.
std::string MakeToolCallId(ToolFamily family, std::string_view key, std::string_view name,
                           uint32_t number);

// The ids that a conversation's template gets, for calls and their results in the order of the
// messages. An id that the template accepts stays as it is. kKimi: the template writes ids into the
// prompt, and the model goes on with their form and their numbers. So there a call gets
// functions.NAME:NUMBER, and numbers rise. One thread at a time.
class ToolCallIds {
 public:
  explicit ToolCallIds(ToolFamily family) : family_(family) {}

  std::string OfCall(std::string_view id, std::string_view name);
  // `id` as in the call whose result this is.
  std::string OfResult(std::string_view id) const;
  // The number of the conversation's next call.
  uint32_t next_number() const { return next_number_; }

 private:
  const ToolFamily family_;
  uint32_t next_number_ = 0;
  std::unordered_map<std::string, std::string> given_;  // kKimi: by the id in the request
};

}  // namespace stagecoach::router
