#include "common/model/device_support.h"

#include <fmt/format.h>

#include <algorithm>

namespace stagecoach {

absl::Status CheckRunsOnGpus(const ModelSpec& spec) {
  const bool has_other_heads =
      std::any_of(spec.kv_groups.begin(), spec.kv_groups.end(), [](const KvGroupSpec& group) {
        return group.head_dim > 0 || group.n_kv_heads > 0 || group.keys_as_values;
      });
  if (has_other_heads || spec.v_norm) {
    return absl::UnimplementedError(fmt::format(
        "{} runs on CPUs only: its layers with full attention have other heads than those with a "
        "window, and values are normed; GPU kernels support neither",
        spec.architecture));
  }
  if (!spec.recurrent) return absl::OkStatus();
  const RecurrentShape& shape = spec.recurrent->shape;
  if (shape.key_dim <= kMaxGpuRecurrentKeys && shape.conv_width <= kMaxGpuConvWidth) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(fmt::format(
      "{} runs on CPUs only: its recurrent layers have heads of {} keys and "
      "convolutions of {} positions; GPU kernels support {} and {}",
      spec.architecture, shape.key_dim, shape.conv_width, kMaxGpuRecurrentKeys, kMaxGpuConvWidth));
}

}  // namespace stagecoach
