// What a compiler of grammars says about a JSON Schema, in the schema's own terms.
#pragma once

#include <string>
#include <string_view>

namespace stagecoach::router {

// `message` about `schema` (JSON), as in "at #/properties/a: the keyword \"not\" is not supported".
// What it does not recognize stays as it is.
std::string InSchemaTerms(std::string_view schema, std::string_view message);

}  // namespace stagecoach::router
