#include "cli/plan/gpu_table.h"

#include "absl/strings/match.h"

namespace stagecoach::plan {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

// Memory is what the driver reports, which is a little less than the GPU's nominal size.
constexpr Gpu kGpus[] = {
    {"B200", 178 * kGiB, 8.0e12, 2250e12},      {"H200", 139 * kGiB, 4.8e12, 989e12, true},
    {"H100", 79 * kGiB, 3.35e12, 989e12, true}, {"H100-PCIe", 79 * kGiB, 2.0e12, 756e12, true},
    {"A100-80GB", 79 * kGiB, 2.04e12, 312e12},  {"A100-40GB", 39 * kGiB, 1.56e12, 312e12},
    {"L40S", 44 * kGiB, 0.864e12, 362e12},      {"L4", 22 * kGiB, 0.3e12, 121e12},
    {"A10", 22 * kGiB, 0.6e12, 125e12},         {"RTX-6000-Ada", 47 * kGiB, 0.96e12, 364e12},
    {"RTX-4090", 23 * kGiB, 1.008e12, 165e12},  {"RTX-5090", 31 * kGiB, 1.79e12, 210e12},
};

}  // namespace

std::span<const Gpu> KnownGpus() { return kGpus; }

std::optional<Gpu> FindGpu(std::string_view name) {
  for (const Gpu& gpu : kGpus) {
    if (absl::EqualsIgnoreCase({gpu.name.data(), gpu.name.size()}, {name.data(), name.size()})) {
      return gpu;
    }
  }
  return std::nullopt;
}

}  // namespace stagecoach::plan
