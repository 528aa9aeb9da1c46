// A finished response and what it answered, as the store keeps them.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router::http {

struct KeptResponse {
  v1::ChatRequest conversation;  // up to and including the response, without instructions
  std::string json;              // the response, as the client got it
};

// The list of the items that `kept` answered, which GET /v1/responses/{id}/input_items returns.
// `query` has the page: order ("desc", the default, or "asc"), limit and after. INVALID_ARGUMENT:
// it is wrong.
absl::StatusOr<std::string> InputItemsJson(const KeptResponse& kept, std::string_view query);

}  // namespace stagecoach::router::http
