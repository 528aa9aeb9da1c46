// How kernels are launched: one parameter struct each, on a stream whose kernels overlap at their
// borders.
//
// Programmatic dependent launch (sm_90 and later): a kernel's blocks come up while the kernel
// before it drains, so that launch latency hides behind it and weights, which no kernel writes, can
// be fetched early. The contract: every kernel calls WaitForPrevious() before it touches anything
// that an earlier kernel may have written or still reads, in every block; and LetNextStart() first,
// unless what the next one fetches would keep it waiting. A step's plan and block tables may be
// read before (LoadPlan): the kernel that makes them lets none start before it ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/l2/l2_sides.h"

namespace stagecoach::kernels::cuda {

struct Stream {
  cudaStream_t handle = nullptr;
  int32_t n_multiprocessors = 1;                  // that work is shared out to
  bool overlaps = false;                          // the device has programmatic dependent launch
  bool is_hopper = false;                         // and the instructions of compute capability 9.0a
  int32_t n_all_multiprocessors = 1;              // of the device
  size_t block_shared_bytes = size_t{227} << 10;  // that a block may have there
  L2Sides l2;
};

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic
  // Blocks of a multiprocessor, of a kernel that has much on its way from memory: to registers all
  // goes through L1, which is given what their shared memory leaves. Else it stays as small as the
  // kernel before has left it, a few KB after one of Hopper's products. 0: any.
  int n_together = 0;
};

__device__ inline void LetNextStart() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

__device__ inline void WaitForPrevious() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

__host__ __device__ constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Launches kKernel(params). An empty grid is nothing to do.
template <auto kKernel, typename Params>
cudaError_t Launch(const Stream& stream, const LaunchShape& shape, const Params& params) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return cudaSuccess;
#ifdef STAGECOACH_EMULATED_CUDA
  if (shape.shared_bytes > stream.block_shared_bytes) return cudaErrorInvalidValue;
  simt::Enqueue(stream.handle, [shape, params] {
    simt::RunGrid(shape.grid, shape.block, shape.shared_bytes, [&params] { kKernel(params); });
  });
  return cudaSuccess;
#else
  constexpr size_t kWithoutAsking = size_t{48} << 10;
  static size_t allowed_bytes = kWithoutAsking;  // a process computes on one device
  if (shape.shared_bytes > allowed_bytes) {
    const cudaError_t error = cudaFuncSetAttribute(
        kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
    if (error != cudaSuccess) return error;
    allowed_bytes = shape.shared_bytes;
  }
  cudaLaunchAttribute attributes[2] = {};
  unsigned n_attributes = 0;
  if (stream.overlaps) {
    cudaLaunchAttribute& overlap = attributes[n_attributes++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (shape.n_together > 0) {
    constexpr size_t kReserved = 1024;  // of each block, and of what one may have
    const size_t needed = static_cast<size_t>(shape.n_together) * (shape.shared_bytes + kReserved);
    const auto percent = CeilDiv(static_cast<int64_t>(100 * needed),
                                 static_cast<int64_t>(stream.block_shared_bytes + kReserved));
    cudaLaunchAttribute& carveout = attributes[n_attributes++];
    carveout.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    carveout.val.sharedMemCarveout = percent < 100 ? static_cast<unsigned>(percent) : 100;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream.handle;
  config.attrs = attributes;
  config.numAttrs = n_attributes;
  return cudaLaunchKernelEx(&config, kKernel, params);
#endif
}

}  // namespace stagecoach::kernels::cuda
