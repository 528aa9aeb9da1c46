// The requests of a drill.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cli/bench/workload.h"

namespace stagecoach::drill {

// Takes turns with all that a stage keeps about a sequence: greedy, seeded, penalties, logprobs, a
// regular expression, a JSON Schema, two choices. Each answer has about n_tokens tokens; the same
// arguments give the same requests.
std::vector<bench::Request> MixedRequests(size_t n, uint32_t n_tokens);

}  // namespace stagecoach::drill
