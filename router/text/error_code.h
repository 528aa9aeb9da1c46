// A machine-readable error code beside the message for people: `error.code` in OpenAI's API.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace stagecoach::router {

inline constexpr char kContextLengthExceeded[] = "context_length_exceeded";

inline constexpr char kPreviousResponseNotFound[] = "previous_response_not_found";

inline constexpr char kResponseNotFound[] = "response_not_found";

inline constexpr char kErrorCodePayload[] = "stagecoach/error-code";

inline absl::Status WithErrorCode(absl::Status status, const char* code) {
  status.SetPayload(kErrorCodePayload, absl::Cord(code));
  return status;
}

// Empty if the error has no code.
inline std::string ErrorCode(const absl::Status& status) {
  const auto code = status.GetPayload(kErrorCodePayload);
  return code.has_value() ? std::string(*code) : "";
}

}  // namespace stagecoach::router
