#include "router/frontend/http/function_tools.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "router/frontend/http/dropped.h"

namespace stagecoach::router::http {

namespace json = boost::json;

std::string FunctionJson(const json::object& tool, const char* parameters_name,
                         std::string_view name) {
  // The order of OpenAI's documents: some templates write the members as they come.
  const std::pair<const char*, const char*> members[] = {{"name", "name"},
                                                         {"description", "description"},
                                                         {"parameters", parameters_name},
                                                         {"strict", "strict"}};
  std::string function;
  for (const auto& [member, client_name] : members) {
    const json::value* value = tool.if_contains(client_name);
    if (value == nullptr || value->is_null()) continue;
    const bool renamed = !name.empty() && value == tool.if_contains("name");
    function += fmt::format("{}\"{}\":{}", function.empty() ? "" : ",", member,
                            renamed ? json::serialize(name) : json::serialize(*value));
  }
  return "{" + function + "}";
}

void FunctionTools::Add(size_t place, std::string_view function, bool deferred) {
  array_ += array_.empty() ? "[" : ",";
  array_ += fmt::format(R"({{"type":"function",{}"function":{}}})",
                        deferred ? R"("defer_loading":true,)" : "", function);
  places_.push_back(place);
}

void FunctionTools::Drop(std::string_view type, std::string_view name) {
  NoteDropped(fmt::format("a tool of the type '{}'", type));
  dropped_.emplace(name.empty() ? type : name);
}

void FunctionTools::Finish(JsonFields& fields, const v1::ToolChoice& choice,
                           ApiRequest& request) const {
  const bool demands_dropped =
      choice.mode() == v1::ToolChoice::NAMED
          ? dropped_.contains(choice.name())
          : choice.mode() == v1::ToolChoice::REQUIRED && array_.empty() && !dropped_.empty();
  if (demands_dropped) {
    fields.Refuse(
        "tool_choice",
        fmt::format("demands the tool '{}', which this server does not offer",
                    choice.mode() == v1::ToolChoice::NAMED ? choice.name() : *dropped_.begin()));
  }
  if (!array_.empty()) request.chat.set_tools(array_ + "]");
  *request.chat.mutable_tool_choice() = choice;
  request.tool_places = places_;
}

bool ForEachTool(
    JsonFields& fields,
    absl::FunctionRef<void(JsonFields& tool_fields, size_t place, const json::object& tool)> read) {
  const json::array* given = fields.Array("tools");
  for (size_t i = 0; given != nullptr && i < given->size(); ++i) {
    const json::object* tool = (*given)[i].if_object();
    if (tool == nullptr) {
      fields.Refuse(fmt::format("tools[{}]", i), "must be an object");
      return false;
    }
    JsonFields inner(*tool, fmt::format("tools[{}].", i));
    read(inner, i, *tool);
    fields.Adopt(inner.status());
  }
  return true;
}

}  // namespace stagecoach::router::http
