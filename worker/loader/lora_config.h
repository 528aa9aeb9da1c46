// The file adapter_config.json of peft.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::worker {

struct LoraConfig {
  double alpha = 8;
  bool rank_stabilised = false;
  // Alphas of single modules. A pattern matches whole components at the end of the module's name;
  // with "^" it must match from the name's beginning too. The first match applies.
  std::vector<std::pair<std::string, double>> alpha_pattern;

  float Scale(std::string_view module, int64_t rank) const;
};

// Reads DIR/adapter_config.json. UNIMPLEMENTED lists what makes the adapter differ from plain LoRA.
absl::StatusOr<LoraConfig> ReadLoraConfig(const std::string& dir);

}  // namespace stagecoach::worker
