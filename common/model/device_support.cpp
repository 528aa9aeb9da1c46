#include "common/model/device_support.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string_view>
#include <vector>

namespace stagecoach {

absl::Status CheckRunsOnGpus(const ModelSpec& spec) {
  std::vector<std::string_view> parts;
  if (spec.clamped_glu.limit > 0) parts.push_back("clamped activations");
  if (spec.experts.biases) parts.push_back("experts with biases");
  if (spec.experts.sigmoid) parts.push_back("experts chosen by sigmoid");
  if (spec.recurrent) parts.push_back("recurrent layers");
  if (spec.attn_gate) parts.push_back("output gates");
  if (spec.shared_expert.intermediate_size > 0) parts.push_back("shared expert");
  if (parts.empty()) return absl::OkStatus();
  return absl::UnimplementedError(
      fmt::format("{} runs on CPUs only: there are no GPU kernels for its {} yet",
                  spec.architecture, fmt::join(parts, ", ")));
}

}  // namespace stagecoach
