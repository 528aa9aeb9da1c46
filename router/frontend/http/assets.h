// Files that the program carries.
#pragma once

#include <string_view>

namespace stagecoach::router::http {

extern const std::string_view kPageHtml;     // page/index.html with all it names
extern const std::string_view kOpenApiJson;  // openapi.json

}  // namespace stagecoach::router::http
