// Dynamic shared memory and asynchronous copies into it (cp.async).
#pragma once

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {

// Aligned to 16 bytes.
__device__ __forceinline__ unsigned char* DynamicShared() {
#ifdef STAGECOACH_EMULATED_CUDA
  return static_cast<unsigned char*>(simt::DynamicShared());
#else
  extern __shared__ __align__(16) unsigned char dynamic_shared[];
  return dynamic_shared;
#endif
}

// Copies 16 bytes, or stores zeros if not `wanted`. Bypasses L1.
__device__ __forceinline__ void CopyAsync16(void* shared, const void* global, bool wanted) {
#ifdef __CUDA_ARCH__
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int n = wanted ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(n)
               : "memory");
#else
  if (wanted) {
    *static_cast<uint4*>(shared) = *static_cast<const uint4*>(global);
  } else {
    *static_cast<uint4*>(shared) = uint4{};
  }
#endif
}

// The same for 4 bytes, through L1.
__device__ __forceinline__ void CopyAsync4(void* shared, const void* global, bool wanted) {
#ifdef __CUDA_ARCH__
  const unsigned to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int n = wanted ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(n)
               : "memory");
#else
  *static_cast<uint32_t*>(shared) = wanted ? *static_cast<const uint32_t*>(global) : 0;
#endif
}

// Ends a group of asynchronous copies.
__device__ __forceinline__ void CommitCopies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most kPending groups of this thread are in flight. Copies by other threads need a
// __syncthreads as well.
template <int kPending>
__device__ __forceinline__ void WaitForCopies() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#endif
}

}  // namespace stagecoach::kernels::cuda
