#include "router/access/retry_after.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "absl/strings/cord.h"

namespace stagecoach::router {
namespace {

constexpr char kPayload[] = "stagecoach/retry-after-s";

}  // namespace

absl::Status WithRetryAfter(absl::Status status, int seconds) {
  const std::string text = fmt::format("{}", seconds);
  // A view: gcc built the library, and clang mangles the Cord constructor from a string
  // differently.
  status.SetPayload(kPayload, absl::Cord(absl::string_view(text)));
  return status;
}

int RetryAfterS(const absl::Status& status) {
  if (const auto payload = status.GetPayload(kPayload)) {
    const std::string text(*payload);
    int seconds = kRetryAfterS;
    std::from_chars(text.data(), text.data() + text.size(), seconds);
    return seconds;
  }
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status) ? kRetryAfterS : 0;
}

}  // namespace stagecoach::router
