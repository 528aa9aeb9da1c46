// Ring of pinned host memory for uploads. The host writes a part, queued work reads it, and the
// ring reuses the part after that work is done.
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

  // `stream` must outlive the ring; the work that reads the memory is queued there.
  absl::Status Init(const Stream* stream);

  // Returns at most kSegmentBytes, aligned to 64 bytes. Blocks while the GPU still reads the old
  // contents. The caller must queue the work that reads this part before the next Take.
  absl::StatusOr<void*> Take(size_t bytes);

 private:
  struct Segment {
    Buffer memory;
    cudaEvent_t done = nullptr;  // completes after all work queued while this segment was current
  };
  std::array<Segment, 4> segments_;
  const Stream* stream_ = nullptr;
  size_t current_ = 0;
  size_t used_ = 0;  // bytes taken from the current segment
};

}  // namespace stagecoach::kernels::cuda
