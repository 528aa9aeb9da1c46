// Files that are embedded in the program.
#pragma once

#include <string_view>

namespace stagecoach::router::http {

extern const std::string_view kPageHtml;     // page/index.html with all files that it references
extern const std::string_view kOpenApiJson;  // openapi.json

}  // namespace stagecoach::router::http
