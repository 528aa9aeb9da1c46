// Number of emulated devices; all are alike. It has its own header because few tests need several
// devices.
#pragma once

#include "kernels/cuda/emulation/runtime.h"

cudaError_t cudaGetDevice(int* device);

namespace simt {
// Sets the number of devices. The initial value is 1.
void SetDeviceCount(int n);
}  // namespace simt
