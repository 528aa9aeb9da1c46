// Ops::Sample on the GPU: brings the rows' parameters, lists and masks there.
//
// Masks are copied on a stream of their own while the layers still run; only the sampling waits for
// them, and only where a row has one.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/device/disturbance.h"
#include "kernels/cuda/device/host_ring.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace stagecoach::kernels::cuda {

class SampleRowStager {
 public:
  // All outlive it.
  SampleRowStager(const Stream* stream, HostRing* ring, Disturbance* disturbance)
      : stream_(stream), ring_(ring), disturbance_(disturbance) {}
  ~SampleRowStager();
  SampleRowStager(const SampleRowStager&) = delete;
  SampleRowStager& operator=(const SampleRowStager&) = delete;

  // Steps allocate nothing: what is freed on a GPU waits for all that runs there.
  absl::Status Init();
  // RESOURCE_EXHAUSTED: a row's lists are larger than what fits at once.
  absl::Status Run(const SampleArgs& args);

 private:
  absl::Status RunPart(const SampleArgs& args, size_t first, size_t n);
  // `staged` of the ring to masks_, ahead of what is queued next.
  absl::Status UploadMasks(const void* staged, size_t bytes);

  const Stream* const stream_;
  HostRing* const ring_;
  Disturbance* const disturbance_;

  cudaStream_t copies_ = nullptr;
  cudaEvent_t copied_ = nullptr;   // masks_ is filled
  cudaEvent_t sampled_ = nullptr;  // and has been read
  Buffer masks_;                   // of one part
};

}  // namespace stagecoach::kernels::cuda
