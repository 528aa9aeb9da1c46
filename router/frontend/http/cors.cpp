#include "router/frontend/http/cors.h"

#include <algorithm>

namespace stagecoach::router::http {

bool Cors::Allows(std::string_view origin) const {
  return std::any_of(origins_.begin(), origins_.end(), [origin](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

HeaderFields Cors::Fields(std::string_view origin) const {
  if (origins_.empty()) return {};
  HeaderFields fields = {{"Vary", "Origin"}};
  if (!origin.empty() && Allows(origin)) {
    fields.emplace_back("Access-Control-Allow-Origin", std::string(origin));
    fields.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  }
  return fields;
}

HeaderFields Cors::PreflightFields() {
  return {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
          // The star leaves Authorization out.
          {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
          {"Access-Control-Max-Age", "600"}};
}

absl::Status Cors::CheckPost(const HttpRequest& request) const {
  const std::string& origin = request.origin;
  if (origin.empty() || Allows(origin)) return absl::OkStatus();
  const size_t scheme = origin.find("://");
  if (scheme != std::string::npos && origin.substr(scheme + 3) == request.host) {
    return absl::OkStatus();
  }
  // A browser asks before it sends JSON, and was not told to go on.
  if (request.content_type.starts_with("application/json")) return absl::OkStatus();
  return absl::PermissionDeniedError("pages of another origin are not allowed here; see --cors");
}

}  // namespace stagecoach::router::http
