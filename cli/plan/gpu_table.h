// Data-sheet figures of data-centre and desktop GPUs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stagecoach::plan {

struct Gpu {
  std::string_view name;    // as given to --gpu
  uint64_t memory_bytes;    // usable by programs
  double bytes_per_s;       // memory bandwidth
  double bf16_flops_per_s;  // dense matrix products
  bool is_hopper = false;   // some kernels exist for Hopper only
};

std::span<const Gpu> KnownGpus();

// Ignores case; absent for an unknown name.
std::optional<Gpu> FindGpu(std::string_view name);

}  // namespace stagecoach::plan
