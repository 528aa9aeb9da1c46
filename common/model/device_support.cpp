#include "common/model/device_support.h"

#include <fmt/format.h>

namespace stagecoach {

absl::Status CheckRunsOnGpus(const ModelSpec& spec) {
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
