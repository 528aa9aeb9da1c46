// PTX wrappers for TMA copies, mbarriers and clusters, one instruction per function. Shared memory
// addresses have 32 bits and are in the CTA's own window unless a comment says otherwise.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda::ptx {

__device__ __forceinline__ uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}

// An 8-byte mbarrier. A phase ends when `n_arrivals` threads have arrived and all expected bytes
// are there.
__device__ __forceinline__ void InitBarrier(uint32_t barrier, uint32_t n_arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(n_arrivals)
               : "memory");
}

// Call after InitBarrier and before other threads use the barrier: makes it visible to TMA and to
// the cluster.
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

// Arrives at the same barrier of another CTA of the cluster. It does not publish writes outside
// this CTA: a cluster-wide release would wait for them every time.
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

// Waits until the phase with this parity has ended.
__device__ __forceinline__ void Wait(uint32_t barrier, uint32_t parity) {
  while (!HasEnded(barrier, parity)) {
  }
}

// A barrier of kThreads threads, whole warps. barrier: 1 to 15, because 0 is __syncthreads'.
template <int kThreads>
__device__ __forceinline__ void SyncThreads(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// Makes threads' writes to shared memory visible to warpgroup MMAs after the next barrier.
__device__ __forceinline__ void FenceShared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Coordinates in a 4-dimensional tensor, innermost first.
struct Coordinates {
  int32_t at[4];
};

// Copies a box of the tensor `map` to shared memory; its bytes count at `barrier`.
__device__ __forceinline__ void CopyBox(uint32_t to, const void* map, const Coordinates& from,
                                        uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]), "r"(from.at[3])
      : "memory");
}

// The same, to the same address in every CTA of the cluster whose bit is set in `blocks`
// (multicast).
__device__ __forceinline__ void CopyBoxToMany(uint32_t to, const void* map, const Coordinates& from,
                                              uint32_t barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(to),
      "l"(map), "r"(barrier), "h"(blocks), "r"(from.at[0]), "r"(from.at[1]), "r"(from.at[2]),
      "r"(from.at[3])
      : "memory");
}

// Copies `bytes`, a multiple of 16, from global to shared memory, both aligned to 16 bytes; they
// count at `barrier`.
__device__ __forceinline__ void CopyBytes(uint32_t to, const void* from, uint32_t bytes,
                                          uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void PrefetchMap(const void* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// Copies of this CTA see a tensor map in device memory that a copy or another kernel has written.
__device__ __forceinline__ void AcquireMap(const void* map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.sys [%0], 128;" ::"l"(map) : "memory");
}

__device__ __forceinline__ uint32_t BlockOfCluster() {
  uint32_t block;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(block));
  return block;
}

// Waits for all threads of all CTAs in the cluster.
__device__ __forceinline__ void SyncCluster() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
}

// A barrier of kThreads threads of the CTA, whole warps. kBarrier: 1 to 15
template <int kBarrier, int kThreads>
__device__ __forceinline__ void SyncSome() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

// Stores to the same address in CTA `block` of the cluster; visible after SyncCluster.
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
// Loads from the same address in CTA `block` of the cluster.
__device__ __forceinline__ float4 LoadFloatsAt(uint32_t address, uint32_t block) {
  float4 four;
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote];\n"
      "}"
      : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
      : "r"(address), "r"(block)
      : "memory");
  return four;
}
__device__ __forceinline__ float4 LoadFloats(uint32_t address) {
  float4 four;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
               : "r"(address)
               : "memory");
  return four;
}

// A warpgroup releases or takes registers, so that each thread has kN.
template <int kN>
__device__ __forceinline__ void GiveBackRegisters() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kN));
}
template <int kN>
__device__ __forceinline__ void TakeRegisters() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kN));
}

}  // namespace stagecoach::kernels::cuda::ptx
