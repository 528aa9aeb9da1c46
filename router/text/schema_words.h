// Rewrites the grammar compiler's errors in terms of the JSON Schema.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::router {

// Rewrites `message` about `schema` (JSON), as in "at #/properties/a: the keyword \"not\" is not
// supported". Leaves unknown messages unchanged.
std::string InSchemaTerms(std::string_view schema, std::string_view message);

}  // namespace stagecoach::router
