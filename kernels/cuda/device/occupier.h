// Occupies SMs the way a waiting NCCL receive does, so that kernels timed beside it take as long as
// in a pipeline.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Not thread-safe.
class Occupier {
 public:
  Occupier() = default;
  ~Occupier();
  Occupier(const Occupier&) = delete;
  Occupier& operator=(const Occupier&) = delete;

  // Uses the current device. A second call does nothing.
  absl::Status Init();
  // In stream order: later work on `stream` finds `n` SMs occupied, each by a CTA that leaves no
  // room for another CTA with much shared memory. They stay occupied until Release, or for at most
  // 0.1 s: this limit prevents a deadlock with work that needs the whole device.
  // REQUIRES: Init; n > 0; not taken. Errors are those of CUDA.
  absl::Status Take(const Stream& stream, int32_t n);
  // Frees the SMs, in stream order.
  absl::Status Release(const Stream& stream);

 private:
  cudaStream_t own_ = nullptr;
  cudaEvent_t cleared_ = nullptr, ended_ = nullptr;
  size_t shared_bytes_ = 0;
  Buffer state_;  // two uint32_t: number of SMs held; whether they are released
};

}  // namespace stagecoach::kernels::cuda
