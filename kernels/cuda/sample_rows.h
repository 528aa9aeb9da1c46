// Ops::Sample on the GPU: brings the rows' parameters and lists there.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/host_ring.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

namespace stagecoach::kernels::cuda {

class SampleRowStager {
 public:
  // Both outlive it.
  SampleRowStager(const Stream* stream, HostRing* ring) : stream_(stream), ring_(ring) {}

  // RESOURCE_EXHAUSTED: a row's lists are larger than what fits at once.
  absl::Status Run(const SampleArgs& args);

 private:
  absl::Status RunPart(const SampleArgs& args, size_t first, size_t n);

  const Stream* const stream_;
  HostRing* const ring_;
};

}  // namespace stagecoach::kernels::cuda
