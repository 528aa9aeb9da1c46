#include "router/frontend/http/rate_fields.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <string>

namespace stagecoach::router::http {
namespace {

// "1m30s", as OpenAI writes a duration.
std::string DurationText(std::chrono::seconds time) {
  const auto minutes = time.count() / 60;
  const auto seconds = time.count() % 60;
  return minutes == 0 ? fmt::format("{}s", seconds) : fmt::format("{}m{}s", minutes, seconds);
}

}  // namespace

HeaderFields RateFields(const RateLimit& rate, ErrorForm form, RateLimit::Clock::time_point now,
                        std::chrono::system_clock::time_point wall_now) {
  const RateLimit::State state = rate.Look(now);
  const std::string limit = fmt::format("{}", state.limit);
  const std::string left = fmt::format("{}", state.left);
  if (form == ErrorForm::kAnthropic) {
    const std::time_t full = std::chrono::system_clock::to_time_t(wall_now + state.until_full);
    return {{"anthropic-ratelimit-requests-limit", limit},
            {"anthropic-ratelimit-requests-remaining", left},
            {"anthropic-ratelimit-requests-reset",
             fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(full))}};
  }
  return {{"x-ratelimit-limit-requests", limit},
          {"x-ratelimit-remaining-requests", left},
          {"x-ratelimit-reset-requests", DurationText(state.until_full)}};
}

}  // namespace stagecoach::router::http
