// Emulated devices, which differ only in their ordinal. They have their own header because few
// tests need more than one.
#pragma once

#include "kernels/cuda/emulation/runtime.h"

cudaError_t cudaGetDevice(int* device);

namespace simt {
// Sets the number of devices. The initial value is 1.
void SetDeviceCount(int n);
}  // namespace simt
