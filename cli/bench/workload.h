// What a benchmark asks for.
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
  // Each length is uniform in [(1 - spread) * tokens, (1 + spread) * tokens]; 0 to 1.
  double spread = 0;
  // The first tokens of a prompt, within input_tokens, are one of n_prefixes common beginnings.
  uint32_t prefix_tokens = 0;
  uint32_t n_prefixes = 1;
  uint64_t seed = 0;
  uint32_t vocab_size = 1;
};

// Greedy requests for uniform token ids; none ends before its output_tokens. The same seed makes
// the same requests.
std::vector<Request> RandomRequests(const RandomWorkload& workload);

}  // namespace stagecoach::bench
