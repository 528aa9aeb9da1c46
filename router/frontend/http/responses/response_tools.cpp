#include "router/frontend/http/responses/response_tools.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <string>

#include "router/frontend/http/function_tools.h"

namespace stagecoach::router::http {
namespace {

namespace json = boost::json;

void SetMode(JsonFields& fields, const char* name, const std::string& mode,
             v1::ToolChoice& choice) {
  if (mode == "none") {
    choice.set_mode(v1::ToolChoice::NONE);
  } else if (mode == "required") {
    choice.set_mode(v1::ToolChoice::REQUIRED);
  } else if (mode != "auto") {
    fields.Refuse(name, R"(must be "auto", "none", "required" or a function)");
  }
}

v1::ToolChoice ReadResponseToolChoice(JsonFields& fields) {
  v1::ToolChoice choice;
  const json::value* given = fields.Any("tool_choice");
  if (given == nullptr) return choice;
  if (given->is_string()) {
    SetMode(fields, "tool_choice", std::string(given->get_string()), choice);
    return choice;
  }
  const json::object* object = fields.Object("tool_choice");
  if (object == nullptr) return choice;
  JsonFields inner(*object, "tool_choice.");
  const std::string type = inner.String("type").value_or("");
  if (type == "allowed_tools") {
    SetMode(inner, "mode", inner.String("mode").value_or("auto"), choice);
  } else {
    // A tool of another type that has no name is known by its type.
    choice.set_mode(v1::ToolChoice::NAMED);
    choice.set_name(inner.String("name").value_or(type == "function" ? "" : type));
    if (choice.name().empty()) inner.Refuse("name", "is missing");
    if (const auto space = inner.String("namespace")) {
      choice.set_name(NameInNamespace(*space, choice.name()));
    }
  }
  fields.Adopt(inner.status());
  return choice;
}

// Reads the functions of a namespace: the model knows each by a name that begins with the
// namespace's.
void ReadNamespace(JsonFields& fields, size_t place, const std::string& space, FunctionTools& tools,
                   ResponsesForm& form) {
  const json::array* inner_tools = fields.Array("tools");
  for (size_t i = 0; inner_tools != nullptr && i < inner_tools->size(); ++i) {
    const std::string inner_place = fmt::format("tools[{}]", i);
    const json::object* tool = (*inner_tools)[i].if_object();
    if (tool == nullptr) return fields.Refuse(inner_place, "must be an object");
    JsonFields inner(*tool, fmt::format("tools[{}].{}.", place, inner_place));
    const std::string type = inner.String("type").value_or("");
    const std::string name = inner.String("name").value_or("");
    if (type == "function" && name.empty()) inner.Refuse("name", "is missing");
    fields.Adopt(inner.status());
    if (type == "function") {
      const std::string full_name = NameInNamespace(space, name);
      tools.Add(place, FunctionJson(*tool, "parameters", full_name));
      form.namespaces.emplace(full_name, space);
    } else {
      tools.Drop(type, name);
    }
  }
}

void ReadResponseTool(JsonFields& fields, size_t place, const json::object& tool,
                      FunctionTools& tools, ResponsesForm& form) {
  const std::string type = fields.String("type").value_or("");
  const std::string name = fields.String("name").value_or("");
  if (type.empty()) fields.Refuse("type", "is missing");
  if (type == "function" && name.empty()) fields.Refuse("name", "is missing");
  if (type == "function") {
    tools.Add(place, FunctionJson(tool, "parameters"));
  } else if (type == "namespace" && !name.empty()) {
    ReadNamespace(fields, place, name, tools, form);
  } else {
    tools.Drop(type, name);
  }
}

}  // namespace

void ReadResponseTools(JsonFields& fields, ApiRequest& request) {
  FunctionTools tools;
  const auto read = [&](JsonFields& inner, size_t place, const json::object& tool) {
    ReadResponseTool(inner, place, tool, tools, request.responses);
  };
  if (!ForEachTool(fields, read)) return;
  if (const auto parallel = fields.Bool("parallel_tool_calls")) {
    request.chat.set_parallel_tool_calls(*parallel);
  }
  tools.Finish(fields, ReadResponseToolChoice(fields), request);
}

}  // namespace stagecoach::router::http
