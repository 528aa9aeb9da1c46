#include "router/frontend/http/anthropic/deferred_tools.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "router/frontend/http/function_tools.h"

namespace stagecoach::router::http {

namespace json = boost::json;

std::string DeferredTools::Load(std::string_view name) {
  for (size_t i = 0; tools_ != nullptr && i < tools_->size(); ++i) {
    const json::object* tool = (*tools_)[i].if_object();
    const json::value* own = tool == nullptr ? nullptr : tool->if_contains("name");
    if (own == nullptr || !own->is_string() || own->get_string() != name) continue;
    loaded_.emplace(name);
    return fmt::format(R"({{"type":"function","function":{}}})",
                       FunctionJson(*tool, "input_schema"));
  }
  return fmt::format("[the tool {} is not offered]", name);
}

}  // namespace stagecoach::router::http
