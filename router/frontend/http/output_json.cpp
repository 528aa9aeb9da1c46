#include "router/frontend/http/output_json.h"

#include <utility>

namespace stagecoach::router::http {

namespace json = boost::json;

void MergeToolCalls(const google::protobuf::RepeatedPtrField<v1::ToolCallDelta>& deltas,
                    std::vector<v1::ToolCallDelta>& calls) {
  for (const v1::ToolCallDelta& delta : deltas) {
    if (!calls.empty() && calls.back().index() == delta.index()) {
      calls.back().mutable_arguments()->append(delta.arguments());
    } else {
      calls.push_back(delta);
    }
  }
}

json::array ToolCallsJson(const std::vector<v1::ToolCallDelta>& calls, bool as_deltas) {
  json::array array;
  for (const v1::ToolCallDelta& call : calls) {
    json::object object;
    json::object function;
    if (as_deltas) object.emplace("index", call.index());
    if (!call.name().empty()) {
      object.emplace("id", call.id());
      object.emplace("type", "function");
      function.emplace("name", call.name());
    }
    function.emplace("arguments", call.arguments());
    object.emplace("function", std::move(function));
    array.push_back(std::move(object));
  }
  return array;
}

void AddJsonEvents(const google::protobuf::RepeatedPtrField<v1::JsonEvent>& events,
                   json::array& to) {
  for (const v1::JsonEvent& event : events) {
    to.push_back(json::object{{"path", event.path()}, {"delta", event.delta()}});
  }
}

}  // namespace stagecoach::router::http
