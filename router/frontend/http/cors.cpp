#include "router/frontend/http/cors.h"

#include <algorithm>
#include <cctype>

#include "common/local_host.h"

namespace stagecoach::router::http {
namespace {

// "chat.example.org:8443" of "https://chat.example.org:8443"; empty for an origin without a host,
// such as "null".
std::string_view HostOf(std::string_view origin) {
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

bool SameName(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

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
          // "*" does not include Authorization.
          {"Access-Control-Allow-Headers", "Authorization, Content-Type, *"},
          {"Access-Control-Max-Age", "600"}};
}

bool Cors::IsOwnHost(std::string_view host) const {
  const std::string_view name = HostName(host);
  if (IsLocalHost(host) || SameName(name, own_name_)) return true;
  return std::any_of(origins_.begin(), origins_.end(), [name](const std::string& allowed) {
    return allowed == "*" || SameName(HostName(HostOf(allowed)), name);
  });
}

absl::Status Cors::CheckSource(const HttpRequest& request) const {
  if (!is_guarded_) return absl::OkStatus();
  if (!request.host.empty() && !IsOwnHost(request.host)) {
    return absl::PermissionDeniedError(
        "Host: is not a name of this machine; without --api-keys this server answers only to local "
        "names and to the sites listed with --cors");
  }
  if (request.origin.empty() || Allows(request.origin)) return absl::OkStatus();
  const std::string_view page = HostOf(request.origin);
  if (!page.empty() &&
      (IsLoopbackName(HostName(page)) || SameName(HostName(page), HostName(request.host)))) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      "web pages of another origin are not allowed; start the server with --cors ORIGIN to allow "
      "one");
}

absl::Status Cors::CheckPost(const HttpRequest& request) const {
  const std::string& origin = request.origin;
  if (origin.empty() || Allows(origin)) return absl::OkStatus();
  if (HostOf(origin) == request.host) return absl::OkStatus();
  // A browser sends a preflight before JSON, and did not get permission.
  if (request.content_type.starts_with("application/json")) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "web pages of another origin are not allowed; start the server with --cors ORIGIN to allow "
      "one");
}

}  // namespace stagecoach::router::http
