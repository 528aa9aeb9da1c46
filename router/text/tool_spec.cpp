#include "router/text/tool_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cctype>

#include "common/check.h"
#include "common/status.h"
#include "router/text/client_json.h"

namespace stagecoach::router {
namespace {

namespace json = boost::json;

constexpr size_t kMaxToolNameBytes = 128;  // as in Anthropic's API; OpenAI's allows 64

absl::Status BadAt(std::string_view place, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", place, what));
}

bool IsName(std::string_view name) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kMaxToolNameBytes &&
         std::all_of(name.begin(), name.end(), allowed);
}

absl::StatusOr<ToolSpec> ParseTool(const json::value& tool, const std::string& place) {
  const json::object* const outer = tool.if_object();
  if (outer == nullptr) return BadAt(place, "is not an object");
  const json::value* const type = outer->if_contains("type");
  if (type == nullptr || !type->is_string() || type->get_string() != "function") {
    return BadAt(place + ".type", "must be \"function\"");
  }
  const json::value* const deferred = outer->if_contains("defer_loading");
  const json::value* const function = outer->if_contains("function");
  if (function == nullptr || !function->is_object()) {
    return BadAt(place + ".function", "is not an object");
  }
  const json::object& inner = function->get_object();
  ToolSpec spec;
  spec.deferred = deferred != nullptr && deferred->is_bool() && deferred->get_bool();
  spec.place = place;
  const json::value* const name = inner.if_contains("name");
  if (name == nullptr || !name->is_string() || !IsName(name->get_string())) {
    return BadAt(place + ".function.name", "must have 1 to 128 letters, digits, '_', '-' or '.'");
  }
  spec.name = name->get_string();
  const json::value* const parameters = inner.if_contains("parameters");
  if (parameters != nullptr && !parameters->is_null()) {
    if (!parameters->is_object()) {
      return BadAt(place + ".function.parameters", "is not a JSON Schema");
    }
    spec.parameters = json::serialize(*parameters);
  }
  const json::value* const strict = inner.if_contains("strict");
  if (strict != nullptr && !strict->is_null()) {
    if (!strict->is_bool()) return BadAt(place + ".function.strict", "is not a boolean");
    spec.strict = strict->get_bool();
  }
  return spec;
}

}  // namespace

absl::StatusOr<std::vector<ToolSpec>> ParseTools(std::string_view text) {
  boost::system::error_code error;
  const json::value tools = ParseClientJson(text, error);
  if (error) return BadAt("tools", fmt::format("is not valid JSON: {}", error.message()));
  if (!tools.is_array()) return BadAt("tools", "is not a JSON array");
  if (tools.get_array().size() > kMaxTools) {
    return BadAt("tools", fmt::format("{} tools; at most {} are allowed", tools.get_array().size(),
                                      kMaxTools));
  }
  std::vector<ToolSpec> specs;
  for (size_t i = 0; i < tools.get_array().size(); ++i) {
    const std::string place = fmt::format("tools[{}]", i);
    SC_ASSIGN_OR_RETURN(ToolSpec spec, ParseTool(tools.get_array()[i], place));
    const bool known = std::any_of(specs.begin(), specs.end(),
                                   [&](const ToolSpec& other) { return other.name == spec.name; });
    if (known) return BadAt(place + ".function.name", "is also the name of another tool");
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::string WithoutDeferred(std::string_view text, std::span<const ToolSpec> specs) {
  const auto is_deferred = [](const ToolSpec& spec) { return spec.deferred; };
  if (std::ranges::none_of(specs, is_deferred)) return std::string(text);
  if (std::ranges::all_of(specs, is_deferred)) return "";
  boost::system::error_code error;
  const json::value tools = ParseClientJson(text, error);
  SC_CHECK(!error);  // ParseTools has read it
  json::array left;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!specs[i].deferred) left.push_back(tools.as_array().at(i));
  }
  return json::serialize(left);
}

}  // namespace stagecoach::router
