// CUDA's runtime, or its emulation on the CPU if STAGECOACH_EMULATED_CUDA is defined.
#pragma once

#ifdef STAGECOACH_EMULATED_CUDA
#include "kernels/cuda/emulation/runtime.h"
#else
#include <cuda_runtime.h>
#endif
