// A copy from host to device that Ops::CopyBeside makes.
#pragma once

#include <cstddef>

namespace stagecoach::kernels {

// Host memory of Ops::AllocateHost, and device memory that gets its contents.
struct HostCopy {
  const void* host;
  void* device;
  size_t bytes;
};

}  // namespace stagecoach::kernels
