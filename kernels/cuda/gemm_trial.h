// Trying ways to multiply: which is fastest, and whether two give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class GemmTrial {
 public:
  // `stream` outlives it.
  explicit GemmTrial(const Stream* stream) : stream_(stream) {}
  ~GemmTrial();

  // Takes and gives back the memory that trials need.
  absl::Status Begin();
  absl::Status End();

  // Of several runs, with nothing of earlier ones in the caches. REQUIRES: between Begin and End.
  absl::StatusOr<float> MedianMs(const std::function<absl::Status()>& run);

  // Whether both ways give the same for random x of args' shape (args' own x and y are left alone).
  using Way = std::function<absl::Status(const GemmArgs&)>;
  absl::StatusOr<bool> SameBits(const GemmArgs& args, const Way& a, const Way& b);

 private:
  absl::Status Grow(Buffer* buffer, size_t bytes);

  const Stream* const stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Buffer cache_filler_, x_, y_, other_y_, n_different_;
};

}  // namespace stagecoach::kernels::cuda
