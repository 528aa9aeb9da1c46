// What the kernels that run on a GPU were compiled for.
//
// It may be an older architecture than the GPU's: if a program has no code for the GPU, the driver
// compiles the newest PTX that it has. Such kernels lack what __CUDA_ARCH__ guards, for example the
// wait of programmatic dependent launch (launch.h). So the GPU's compute capability does not tell
// which features may be used.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

struct CompiledFor {
  int32_t architecture = 0;  // __CUDA_ARCH__: 900 for compute capability 9.0
  bool has_hopper = false;   // the instructions of compute capability 9.0a

  constexpr bool has_dependent_launch() const { return architecture >= 900; }
};

// Asks the code itself: runs a kernel on `stream`, and waits for it.
cudaError_t FindCompiledFor(cudaStream_t stream, CompiledFor* found);

}  // namespace stagecoach::kernels::cuda
