#include "worker/make_ops.h"

#include <fmt/format.h>

#include <charconv>
#include <string_view>

#include "kernels/cpu/cpu_ops.h"
#ifdef STAGECOACH_WITH_CUDA
#include "kernels/cuda/cuda_ops.h"
#endif

namespace stagecoach::worker {
namespace {

constexpr std::string_view kCuda = "cuda";

}  // namespace

absl::StatusOr<std::unique_ptr<kernels::Ops>> MakeOps(const DeviceOptions& options) {
  std::string_view device = options.device;
  if (device == "cpu") return kernels::MakeCpuOps({.n_threads = options.n_threads});
  int32_t index = 0;
  if (device.starts_with("cuda:")) {
    const std::string_view digits = device.substr(kCuda.size() + 1);
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), index);
    if (error == std::errc() && end == digits.end()) device = kCuda;
  }
  if (device != kCuda || index < 0) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' is not a device; use cpu, cuda or cuda:N", options.device));
  }
#ifdef STAGECOACH_WITH_CUDA
  return kernels::MakeCudaOps({.device = index,
                               .batch_invariant = options.batch_invariant,
                               .disturbance_seed = options.disturbance_seed,
                               .reserved_bytes = options.reserved_bytes});
#else
  return absl::InvalidArgumentError(
      "this build has no kernels for GPUs: build with `cmake --preset cuda`");
#endif
}

}  // namespace stagecoach::worker
