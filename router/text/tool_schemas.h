// The schemas of the offered tools, by name.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagecoach::router {

// Pairs of a tool's name and the JSON Schema of its arguments, or "". All choices of a request
// share them. Null: no tools.
using ToolSchemaList = std::vector<std::pair<std::string, std::string>>;
using ToolSchemas = std::shared_ptr<const ToolSchemaList>;

// Null: no tool has this name.
inline const std::string* FindSchema(const ToolSchemas& schemas, std::string_view name) {
  if (schemas == nullptr) return nullptr;
  const auto tool = std::ranges::find(*schemas, name, &ToolSchemaList::value_type::first);
  return tool != schemas->end() ? &tool->second : nullptr;
}

}  // namespace stagecoach::router
