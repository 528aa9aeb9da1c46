#include "router/frontend/http/anthropic/tool_fields.h"

#include <boost/json.hpp>
#include <string>

#include "router/frontend/http/dropped.h"
#include "router/frontend/http/function_tools.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

void ReadAnthropicTool(JsonFields& fields, size_t place, const json::object& tool,
                       const DeferredTools& deferred, FunctionTools& tools) {
  const std::string type = fields.String("type").value_or("custom");
  const std::string name = fields.String("name").value_or("");
  if (type != "custom") return tools.Drop(type, name);
  if (name.empty()) fields.Refuse("name", "is missing");
  if (fields.Object("input_schema") == nullptr) fields.Refuse("input_schema", "is missing");
  if (fields.Any("cache_control") != nullptr) NoteDropped("cache_control in tools");
  const bool is_deferred = fields.Bool("defer_loading").value_or(false);
  if (is_deferred && !deferred.is_loaded(name)) return;
  tools.Add(place, FunctionJson(tool, "input_schema"), is_deferred);
}

v1::ToolChoice ReadAnthropicChoice(JsonFields& fields, v1::ChatRequest& chat) {
  v1::ToolChoice choice;
  const json::object* given = fields.Object("tool_choice");
  if (given == nullptr) return choice;
  JsonFields inner(*given, "tool_choice.");
  const std::string type = inner.String("type").value_or("");
  if (type == "none") {
    choice.set_mode(v1::ToolChoice::NONE);
  } else if (type == "any") {
    choice.set_mode(v1::ToolChoice::REQUIRED);
  } else if (type == "tool") {
    choice.set_mode(v1::ToolChoice::NAMED);
    choice.set_name(inner.String("name").value_or(""));
    if (choice.name().empty()) inner.Refuse("name", "is missing");
  } else if (type != "auto") {
    inner.Refuse("type", R"(must be "auto", "any", "tool" or "none")");
  }
  if (inner.Bool("disable_parallel_tool_use").value_or(false)) {
    chat.set_parallel_tool_calls(false);
  }
  fields.Adopt(inner.status());
  return choice;
}

}  // namespace

void ReadAnthropicTools(JsonFields& fields, const DeferredTools& deferred, ApiRequest& request) {
  FunctionTools tools;
  const auto read = [&](JsonFields& inner, size_t place, const json::object& tool) {
    ReadAnthropicTool(inner, place, tool, deferred, tools);
  };
  if (!ForEachTool(fields, read)) return;
  tools.Finish(fields, ReadAnthropicChoice(fields, request.chat), request);
}

}  // namespace stagecoach::router::http
