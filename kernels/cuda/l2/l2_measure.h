// The sides of L2, by latencies.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Takes some milliseconds of an idle GPU. One that is at other work may be misunderstood: nothing
// is known then, or what costs energy.
L2Sides MeasureL2Sides(const Stream& stream);

// Of every page of `memory` a bit, in device memory: the side of its first chunk. Empty: not to be
// had. REQUIRES: sides.known()
absl::StatusOr<Buffer> MeasurePageSides(const Stream& stream, const L2Sides& sides,
                                        const Buffer& memory);

// What latencies say, in cycles: [kMaxSidedMultiprocessors, kPageChunks]. Multiprocessors of which
// there are none are not among n, and have zeros.
L2Sides SidesOf(std::span<const uint16_t> latencies, int32_t n_multiprocessors);

}  // namespace stagecoach::kernels::cuda
