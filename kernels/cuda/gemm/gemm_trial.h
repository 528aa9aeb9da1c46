// Autotuning of GEMMs: which candidate is fastest, and whether two candidates give the same bits.
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
  // `stream` must outlive it.
  explicit GemmTrial(const Stream* stream) : stream_(stream) {}
  ~GemmTrial();

  // Allocate and free the memory that trials need.
  absl::Status Begin();
  absl::Status End();

  // Median time of each of `runs`, candidates for the GEMM `args`; infinite if it fails. The
  // candidates alternate, because large GEMMs heat the device and slow it down, some more than
  // others. Short GEMMs find the caches as in a step: with their inputs and without weights. If the
  // stream leaves SMs to other kernels, the trial occupies those SMs. REQUIRES: between Begin and
  // End.
  std::vector<float> MediansMs(const GemmArgs& args,
                               const std::vector<std::function<absl::Status()>>& runs);

  // Whether both candidates give the same bits for random x and y of args' shape. Does not touch
  // args.x and args.y.
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
