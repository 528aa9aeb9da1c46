// Host memory on its way to the GPU: written by the host, read by work that is queued next, and
// used again when that work is done.
#pragma once

#include <array>
#include <cstddef>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class HostRing {
 public:
  static constexpr size_t kSegmentBytes = size_t{16} << 20;

  HostRing() = default;
  HostRing(const HostRing&) = delete;
  HostRing& operator=(const HostRing&) = delete;
  ~HostRing();

  // `stream`, which outlives it, is where the work is queued.
  absl::Status Init(const Stream* stream);

  // At most kSegmentBytes, aligned to 64. Waits while the GPU still reads what was there. The work
  // that reads it is queued before the next Take.
  absl::StatusOr<void*> Take(size_t bytes);

 private:
  struct Segment {
    Buffer memory;
    cudaEvent_t done = nullptr;  // what was queued while this was the current one
  };
  std::array<Segment, 4> segments_;
  const Stream* stream_ = nullptr;
  size_t current_ = 0;
  size_t used_ = 0;  // of the current segment
};

}  // namespace stagecoach::kernels::cuda
