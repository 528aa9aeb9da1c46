// Sampling parameters as command-line flags.
#pragma once

#include "stagecoach/v1/inference.pb.h"

namespace CLI {
class App;
}

namespace stagecoach::cli {

// Only flags that are given set a field; the server takes all others from the checkpoint or its own
// defaults. `sampling` must outlive `app`.
void AddSamplingFlags(CLI::App& app, v1::SamplingParams& sampling);
// --logprobs and --prompt-logprobs, for commands that print JSON.
void AddLogprobFlags(CLI::App& app, v1::SamplingParams& sampling);

}  // namespace stagecoach::cli
