// Trying ways to multiply: which is fastest, and whether two give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/occupier.h"
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

  // What each of `runs`, ways to `args`' product, takes, the median of several times; infinite for
  // one that fails. They take turns: large products heat the device, which slows down, and some of
  // them more than others. Small ones find in the caches what they would in a step: their inputs
  // and no weights. Where the stream leaves multiprocessors to others, those are taken meanwhile.
  // REQUIRES: between Begin and End.
  std::vector<float> MediansMs(const GemmArgs& args,
                               const std::vector<std::function<absl::Status()>>& runs);

  // Whether both ways give the same for random x of args' shape (args' own x and y are left alone).
  using Way = std::function<absl::Status(const GemmArgs&)>;
  absl::StatusOr<bool> SameBits(const GemmArgs& args, const Way& a, const Way& b);

 private:
  absl::StatusOr<float> Ms(const GemmArgs& args, const std::function<absl::Status()>& run,
                           bool clear_caches, int32_t n_taken);
  cudaError_t ClearCaches(const GemmArgs& args);
  absl::Status Grow(Buffer* buffer, size_t bytes);
  bool Take(int32_t n);
  void CannotTake(const absl::Status& why);

  const Stream* const stream_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  Occupier occupier_;
  bool can_take_ = false;
  Buffer cache_filler_, x_, y_, other_y_, n_different_;
};

}  // namespace stagecoach::kernels::cuda
