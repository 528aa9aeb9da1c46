// Generates the requests of a benchmark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::bench {

using Request = std::variant<v1::GenerateRequest, v1::ChatRequest>;

struct RandomWorkload {
  size_t n_requests = 1;
  uint32_t input_tokens = 128;
  uint32_t output_tokens = 128;
  // Each length is drawn uniformly from [(1 - spread) * tokens, (1 + spread) * tokens]; 0 to 1.
  double spread = 0;
  // Each prompt starts with one of n_prefixes common prefixes of this many tokens, which count
  // towards input_tokens.
  uint32_t prefix_tokens = 0;
  uint32_t n_prefixes = 1;
  uint64_t seed = 0;
  uint32_t vocab_size = 1;
};

// Greedy requests whose token ids are drawn uniformly. No request ends before its output_tokens.
// The same seed gives the same requests.
std::vector<Request> RandomRequests(const RandomWorkload& workload);

}  // namespace stagecoach::bench
