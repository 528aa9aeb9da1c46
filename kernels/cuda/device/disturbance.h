// What a right program does not notice: for tests of what is ordered and what is read.
//
// Between kernels others run that only pass time, some of which let the next one start at once;
// memory and the KV blocks that a sequence begins are full of NaN.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class Disturbance {
 public:
  // 0: nothing happens.
  explicit Disturbance(uint64_t seed) : state_(seed) {}

  bool is_on() const { return state_ != 0; }
  // Now and then up to a fifth of a millisecond on `stream`.
  cudaError_t Delay(const Stream& stream);
  // With what is NaN in each float type; with zeros when off.
  cudaError_t Fill(const Stream& stream, void* memory, size_t bytes) const;
  // The blocks whose first token the rows of `args` are. Before Ops::RopeAppend. REQUIRES: is_on()
  cudaError_t FillNewBlocks(const Stream& stream, const RopeAppendArgs& args) const;

 private:
  uint64_t state_;
};

}  // namespace stagecoach::kernels::cuda
