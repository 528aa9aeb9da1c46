// Refuses an allocation that does not fit, before the data is read or computed.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "absl/status/status.h"
#include "common/size.h"
#include "kernels/ops.h"

namespace stagecoach::worker {

// RESOURCE_EXHAUSTED if a device with its own memory has no room for `what`; the message contains
// `remedy`.
inline absl::Status CheckRoom(const kernels::Ops& ops, std::string_view what, uint64_t bytes,
                              std::string_view remedy) {
  if (!ops.has_own_memory()) return absl::OkStatus();
  const kernels::MemoryInUse memory = ops.Memory();
  if (bytes <= memory.free_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "the stage's {} take {}, but of the device's {} only {} are free: {}", what,
      FormatBytes(bytes), FormatBytes(memory.total_bytes), FormatBytes(memory.free_bytes), remedy));
}

}  // namespace stagecoach::worker
