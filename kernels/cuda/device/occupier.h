// Multiprocessors that somebody else holds, as a receive of NCCL's holds one while it waits: what
// is timed beside it takes as long as it will take in a pipeline.
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

  // On the current device. Again: no effect.
  absl::Status Init();
  // In the order of `stream`: what comes next finds `n` multiprocessors taken by a block each that
  // leaves no room for another of much shared memory; until Release, or for a tenth of a second,
  // lest what waits for the whole device waits for ever. REQUIRES: Init; n > 0; not taken.
  absl::Status Take(const Stream& stream, int32_t n);
  absl::Status Release(const Stream& stream);

 private:
  cudaStream_t own_ = nullptr;
  cudaEvent_t cleared_ = nullptr, ended_ = nullptr;
  size_t shared_bytes_ = 0;
  Buffer state_;  // two uint32_t: how many are held, whether they are released
};

}  // namespace stagecoach::kernels::cuda
