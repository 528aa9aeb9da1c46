// Ops::Sample on the GPU: transfers the rows' parameters, lists and masks.
//
// Masks are copied on a separate stream while the layers still run. Only the sampling kernel waits
// for them, and only if a row has a mask.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/device/disturbance.h"
#include "kernels/cuda/device/host_ring.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/ops.h"

namespace stagecoach::kernels::cuda {

class SampleRowStager {
 public:
  // All arguments must outlive it.
  SampleRowStager(const Stream* stream, HostRing* ring, Disturbance* disturbance)
      : stream_(stream), ring_(ring), disturbance_(disturbance) {}
  ~SampleRowStager();
  SampleRowStager(const SampleRowStager&) = delete;
  SampleRowStager& operator=(const SampleRowStager&) = delete;

  // Allocates everything that steps need. Steps must not allocate: cudaFree waits for all work on
  // the GPU.
  absl::Status Init();
  // RESOURCE_EXHAUSTED: the lists of one row exceed a segment of the host ring.
  absl::Status Run(const SampleArgs& args);

 private:
  absl::Status RunPart(const SampleArgs& args, size_t first, size_t n);
  // Copies `staged`, which is in the host ring, to masks_. Work that is queued later on stream_
  // waits for it.
  absl::Status UploadMasks(const void* staged, size_t bytes);

  const Stream* const stream_;
  HostRing* const ring_;
  Disturbance* const disturbance_;

  cudaStream_t copies_ = nullptr;
  cudaEvent_t copied_ = nullptr;   // masks_ is filled
  cudaEvent_t sampled_ = nullptr;  // masks_ has been read
  Buffer masks_;                   // masks of the rows of one RunPart
};

}  // namespace stagecoach::kernels::cuda
