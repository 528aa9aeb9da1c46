// What Hopper's bulk tensor copies and warpgroup products need, one PTX instruction a function.
// Addresses of shared memory are 32 bits, in the block's own window unless said otherwise.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda::ptx {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// A barrier of 8 bytes: a phase ends when `n_arrivals` have arrived and all announced bytes are
// there.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals)
               : "memory");
}

// After InitBarrier, before others are told: copies and the cluster's other blocks see it too.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void ArriveAndExpect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void Arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// At the same barrier of a block of the cluster. Tells of no writes to memory beyond the block:
// a release for the whole cluster would wait for them each time.
__device__ __forceinline__ void ArriveAt(uint32_t barrier, uint32_t block) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}" ::"r"(barrier),
      "r"(block)
      : "memory");
}

__device__ __forceinline__ bool HasEnded(uint32_t barrier, uint32_t parity) {
  uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

// Until the phase of that parity has ended.
__device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
  while (!HasEnded(barrier, parity)) {
  }
}

// What threads wrote to shared memory, for warpgroup products to see after the next barrier.
__device__ __forceinline__ void FenceShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Of 4-dimensional tensors, the innermost first.
struct Coordinates {
  int32_t at[4];
};

// A box of a tensor, `map`'s, to shared memory; its bytes arrive at `barrier`.
__device__ __forceinline__ void CopyBox(uint32_t to, const void* map, const Coordinates& from,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(from.at[3])
      : "memory");
}

// The same, to the same place of each block of the cluster that `blocks` has a bit of.
__device__ __forceinline__ void CopyBoxToMany(uint32_t to, const void* map, const Coordinates& from,
                                              uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
      "l"(map), "r"(barrier), "h"(blocks), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]),
      "r"(from.at[3])
      : "memory");
}

__device__ __forceinline__ void PrefetchMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

__device__ __forceinline__ uint32_t BlockOfCluster() {
  uint32_t block;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
}

// Of all threads of all blocks of the cluster.
__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// To the same place of a block of the cluster; it is there after SyncCluster.
__device__ __forceinline__ void StoreAt(uint32_t address, uint32_t block, float4 four) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "st.shared::cluster.v4.f32 [remote], {%2, %3, %4, %5};\n"
      "}" ::"r"(address),
      "r"(block), "f"(four.x), "f"(four.y), "f"(four.z), "f"(four.w)
      : "memory");
}
__device__ __forceinline__ float4 LoadFloats(uint32_t address) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(address)
               : "memory");
  return four;
}

// Registers that a warpgroup gives back or takes, to have kN a thread.
template <int kN>
__device__ __forceinline__ void GiveBackRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kN));
}
template <int kN>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kN));
}

}  // namespace stagecoach::kernels::cuda::ptx
