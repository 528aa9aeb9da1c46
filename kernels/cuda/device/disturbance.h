// Fault injection that a correct program does not notice. It tests ordering and reads of unwritten
// memory.
//
// Extra kernels that only pass time run between the real kernels. Some of them let the next kernel
// start at once through programmatic dependent launch. New memory, and KV blocks that a sequence
// starts to fill, contain NaN.
//
// Signals to a process with a disturbance cause the two faults of a GPU that a pipeline must
// survive, before the next kernel: SIGRTMIN + 1 a device error, SIGRTMIN + 2 a kernel that never
// ends.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class Disturbance {
 public:
  // seed 0: off.
  explicit Disturbance(uint64_t seed);

  bool is_on() const { return state_ != 0; }
  // Queues a delay of up to 0.2 ms on `stream` for one call in four, at random.
  cudaError_t Delay(const Stream& stream);
  // Fills memory with bytes 0xff, which is NaN in every float type; with zeros if off.
  cudaError_t Fill(const Stream& stream, void* memory, size_t bytes) const;
  // Fills the KV blocks for which `args` contains the row of the first token. Call before
  // Ops::RopeAppend. REQUIRES: is_on()
  cudaError_t FillNewBlocks(const Stream& stream, const RopeAppendArgs& args) const;

 private:
  uint64_t state_;
};

}  // namespace stagecoach::kernels::cuda
