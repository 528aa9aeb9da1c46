// CUDA's runtime, or where STAGECOACH_EMULATED_CUDA is defined what stands in for it.
#pragma once

#ifdef STAGECOACH_EMULATED_CUDA
#include "kernels/cuda/emulation/runtime.h"
#else
#include <cuda_runtime.h>
#endif
