// The log's line about one request that has ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"

namespace stagecoach::router {

struct EndedRequest {
  std::string tenant;  // empty: the server has no keys
  std::string api;     // "grpc", or the path over HTTP
  size_t n_prompt_tokens = 0;
  size_t n_cached_tokens = 0;  // part of n_prompt_tokens
  size_t n_output_tokens = 0;  // of all choices
  size_t n_choices = 0;
  std::optional<double> ttft_ms;  // absent: there was no token
  double duration_ms = 0;
  std::string finish;  // of the choice that ended last; empty: it was cut short
  absl::Status status;
};

// "tenant=- api=/v1/chat/completions prompt_tokens=12 ... finish=stop status=OK". A value that is
// absent is "-". The message of an error comes last, in quotes.
std::string RequestLine(const EndedRequest& request);

}  // namespace stagecoach::router
