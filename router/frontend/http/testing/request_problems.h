// Error messages of refused requests.
#pragma once

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/http/api_request.h"

namespace stagecoach::router::http {

// Returns why a completion request with these JSON fields is refused.
inline std::string CompletionProblem(const std::string& fields) {
  const auto request = ParseCompletionRequest("{" + fields + "}");
  INFO(fields);
  REQUIRE_FALSE(request.ok());
  CHECK(absl::IsInvalidArgument(request.status()));
  return std::string(request.status().message());
}

// Returns why a chat request of one message with these further JSON fields is refused.
inline std::string ChatProblem(const std::string& fields) {
  const auto request =
      ParseChatRequest(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}");
  INFO(fields);
  REQUIRE_FALSE(request.ok());
  return std::string(request.status().message());
}

}  // namespace stagecoach::router::http
