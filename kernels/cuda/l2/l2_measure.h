// Measures the L2 partitions from latencies.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Takes some milliseconds on an idle GPU. On a busy GPU the result may be unknown, or wrong, which
// costs energy but no correctness. The environment variable STAGECOACH_L2_SIDES=off leaves it
// unknown, to compare.
L2Sides MeasureL2Sides(const Stream& stream);

// 32-bit words that hold one bit per page of `bytes` of memory.
constexpr size_t PageWords(size_t bytes) {
  return ((bytes + kPageBytes - 1) / kPageBytes + 31) / 32;
}

// Returns one bit per page of `memory`, in device memory: the partition of the page's first chunk.
// An empty buffer means that the measurement failed. REQUIRES: sides.known()
absl::StatusOr<Buffer> MeasurePageSides(const Stream& stream, const L2Sides& sides,
                                        const Buffer& memory);

// Derives the partitions from latencies in cycles: [kMaxSidedMultiprocessors, kPageChunks]. SM ids
// that do not exist have zeros and are not part of n_multiprocessors.
L2Sides SidesOf(std::span<const uint16_t> latencies, int32_t n_multiprocessors);

}  // namespace stagecoach::kernels::cuda
