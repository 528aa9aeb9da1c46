// What GPUs of data centres and desks have, by their makers' data sheets.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stagecoach::plan {

struct Gpu {
  std::string_view name;    // as --gpu takes it
  uint64_t memory_bytes;    // that programs can use
  double bytes_per_s;       // of its memory
  double bf16_flops_per_s;  // dense products
};

std::span<const Gpu> KnownGpus();

// Upper and lower case are the same; absent for others.
std::optional<Gpu> FindGpu(std::string_view name);

}  // namespace stagecoach::plan
