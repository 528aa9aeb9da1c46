// Kernel launches. A kernel takes one parameter struct, and consecutive kernels of a stream overlap
// at their borders.
//
// Programmatic dependent launch (sm_90 and later): the CTAs of a kernel start while the previous
// kernel drains. This hides the launch latency, and a kernel may prefetch weights early because no
// kernel writes them. The contract: every CTA of every kernel calls WaitForPrevious() before it
// touches memory that an earlier kernel may have written or may still read. Every kernel calls
// LetNextStart() first, unless the early fetches of the next kernel would slow it down. A kernel
// may read a step's plan and block tables before WaitForPrevious() with LoadPlan: the kernel that
// builds them never calls LetNextStart(), so no later kernel starts before it ends.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"
#include "kernels/cuda/device/l2_sides.h"

namespace stagecoach::kernels::cuda {

// What kernels have depends on what they were compiled for (compiled_for.h), and on the device.
struct Stream {
  cudaStream_t handle = nullptr;
  int32_t n_multiprocessors = 1;      // SMs that work is distributed to
  bool overlaps = false;              // kernels have programmatic dependent launch
  bool is_hopper = false;             // kernels have the instructions of compute capability 9.0a
  bool groups_gemms = false;          // experts use hopper_grouped.h; only if is_hopper
  int32_t n_all_multiprocessors = 1;  // all SMs of the device
  size_t block_shared_bytes = size_t{227} << 10;  // maximum shared memory per CTA
  L2Sides l2;
};

struct LaunchShape {
  dim3 grid;
  dim3 block;
  size_t shared_bytes = 0;  // dynamic shared memory
  // CTAs per SM that the shared memory carveout must hold; 0: no preference. Set this for kernels
  // with many loads in flight. Loads into registers pass through L1, and L1 gets the part of the
  // combined array that the carveout leaves. Without a preference, L1 keeps the size that the
  // previous kernel left: a few KB after a Hopper GEMM.
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

// Launches kKernel(params). Does nothing for an empty grid.
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
  static size_t allowed_bytes = kWithoutAsking;  // one device per process
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
    // Shared memory that CUDA reserves per CTA, in addition to block_shared_bytes.
    constexpr size_t kReserved = 1024;
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
