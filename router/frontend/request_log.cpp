#include "router/frontend/request_log.h"

#include <fmt/format.h>

#include <string_view>

namespace stagecoach::router {
namespace {

std::string_view OrDash(std::string_view text) { return text.empty() ? "-" : text; }

}  // namespace

std::string RequestLine(const EndedRequest& request) {
  std::string line = fmt::format(
      "tenant={} api={} prompt_tokens={} cached_tokens={} output_tokens={} choices={} ttft_ms={} "
      "duration_ms={:.0f} finish={} status={}",
      OrDash(request.tenant), OrDash(request.api), request.n_prompt_tokens, request.n_cached_tokens,
      request.n_output_tokens, request.n_choices,
      request.ttft_ms ? fmt::format("{:.0f}", *request.ttft_ms) : "-", request.duration_ms,
      OrDash(request.finish), absl::StatusCodeToString(request.status.code()));
  if (!request.status.ok()) {
    line += fmt::format(" error=\"{}\"", std::string(request.status.message()));
  }
  return line;
}

}  // namespace stagecoach::router
