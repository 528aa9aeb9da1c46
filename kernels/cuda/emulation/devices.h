// Emulated devices, which differ in nothing but their number. A header of its own, as few tests
// need more than one.
#pragma once

#include "kernels/cuda/emulation/runtime.h"

cudaError_t cudaGetDevice(int* device);

namespace simt {
// How many there are; 1 until it is called.
void SetDeviceCount(int n);
}  // namespace simt
