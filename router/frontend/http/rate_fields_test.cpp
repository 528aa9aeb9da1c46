#include "router/frontend/http/rate_fields.h"

#include <chrono>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router::http {
namespace {

TEST_CASE("header fields say what is left of a key's rate") {
  const RateLimit::Clock::time_point now{std::chrono::hours(1)};
  const std::chrono::system_clock::time_point wall_now{std::chrono::seconds(1'700'000'000)};
  RateLimit rate(60);
  CHECK(RateFields(rate, ErrorForm::kOpenAi, now, wall_now) ==
        HeaderFields{{"x-ratelimit-limit-requests", "60"},
                     {"x-ratelimit-remaining-requests", "60"},
                     {"x-ratelimit-reset-requests", "0s"}});
  CHECK(rate.Take(60, now).ok());
  CHECK(RateFields(rate, ErrorForm::kOpenAi, now, wall_now)[2].second == "1m0s");
  CHECK(
      RateFields(rate, ErrorForm::kAnthropic, now + std::chrono::milliseconds(20'500), wall_now) ==
      HeaderFields{{"anthropic-ratelimit-requests-limit", "60"},
                   {"anthropic-ratelimit-requests-remaining", "20"},
                   {"anthropic-ratelimit-requests-reset", "2023-11-14T22:14:00Z"}});
}

}  // namespace
}  // namespace stagecoach::router::http
