// The tools that a client offers to the model, as in OpenAI's API.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::router {

inline constexpr size_t kMaxTools = 128;

struct ToolSpec {
  std::string name;        // [A-Za-z0-9_.-]{1,128}
  std::string parameters;  // a JSON Schema; "" if there are none
  // True: arguments must match the schema in full, or else the request is refused. False: as far as
  // possible. Absent: tool_choice decides.
  std::optional<bool> strict = std::nullopt;
  // The template does not get it: the client defers it, and shows it in the conversation.
  bool deferred = false;
  std::string place = "tools";  // position of the tool in the request: "tools[1]"
};

// `json`: [{"type": "function", "function": {"name", "description", "parameters", "strict"}}].
// A tool beside whose "type" there is "defer_loading": true is deferred. INVALID_ARGUMENT names the
// place, as in "tools[1].function.name: ...".
absl::StatusOr<std::vector<ToolSpec>> ParseTools(std::string_view json);

// `json` without the tools that `specs`, from ParseTools(json), says are deferred. "": none is
// left.
std::string WithoutDeferred(std::string_view json, std::span<const ToolSpec> specs);

}  // namespace stagecoach::router
