// Copies from pinned host memory that run beside the kernels of a stream, on a copy engine. Kernels
// that read host memory would hold SMs for as long as the bus needs.
#pragma once

#include <span>

#include "absl/status/status.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/host_copy.h"

namespace stagecoach::kernels::cuda {

// See Ops::CopyBeside and Ops::JoinCopies. One thread at a time.
class SideCopies {
 public:
  SideCopies() = default;
  SideCopies(const SideCopies&) = delete;
  SideCopies& operator=(const SideCopies&) = delete;
  ~SideCopies();  // waits for the copies

  absl::Status Copy(const Stream& stream, std::span<const HostCopy> copies);
  absl::Status Join(const Stream& stream);
  absl::Status Synchronize();

 private:
  absl::Status Init();

  cudaStream_t copies_ = nullptr;  // null: nothing was copied yet
  cudaEvent_t before_ = nullptr;   // the stream's work that the copies follow
  cudaEvent_t done_ = nullptr;
};

}  // namespace stagecoach::kernels::cuda
