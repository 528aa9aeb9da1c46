// The CUDA execution model on the CPU, so that the kernels' own source runs and is tested without a
// GPU. The threads of a CTA are fibers. Barriers and warp collectives switch between them. CTAs run
// one after another. It is slow. The order of threads, which hardware leaves undefined, changes
// with STAGECOACH_SIMT_SEED, so that a missing barrier shows.
//
// Differences from CUDA: __shared__ variables keep their content from CTA to CTA; floating-point
// atomics run in thread order; all lanes must take part in a warp collective.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) alignas(n)
#define __grid_constant__

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct alignas(8) uint2 {
  uint32_t x, y;
};
struct alignas(16) uint4 {
  uint32_t x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Values for the running thread.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace simt {

// Runs `thread` once for each thread of each CTA. Only one grid runs at a time in the process.
void RunGrid(dim3 grid, dim3 block, size_t dynamic_shared_bytes,
             const std::function<void()>& thread);

void* DynamicShared();
void BlockBarrier();
void WarpBarrier();

inline unsigned ThreadOfBlock() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
inline unsigned Lane() { return ThreadOfBlock() % 32; }

// The values that all lanes of the calling thread's warp pass to one collective, by lane.
struct Exchange {
  static constexpr size_t kBytesPerLane = 64;
  alignas(16) std::byte lanes[32][kBytesPerLane];

  template <typename T>
  T Of(unsigned lane) const {
    T value;
    std::memcpy(&value, lanes[lane % 32], sizeof(T));
    return value;
  }
};

// Stores `bytes` of the calling lane and waits for all lanes. The result is valid until the lane's
// second next collective.
const Exchange& Collect(const void* value, size_t bytes);

template <typename T>
const Exchange& Collect(const T& value) {
  static_assert(sizeof(T) <= Exchange::kBytesPerLane && std::is_trivially_copyable_v<T>);
  return Collect(&value, sizeof(T));
}

}  // namespace simt

inline void __syncthreads() { simt::BlockBarrier(); }
inline void __syncwarp(unsigned = ~0u) { simt::WarpBarrier(); }
inline void __threadfence() {}

template <typename T>
T __shfl_sync(unsigned, T value, int lane) {
  return simt::Collect(value).template Of<T>(static_cast<unsigned>(lane));
}
template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return simt::Collect(value).template Of<T>(simt::Lane() ^ static_cast<unsigned>(mask));
}
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const simt::Exchange& all = simt::Collect(value);
  return simt::Lane() >= delta ? all.template Of<T>(simt::Lane() - delta) : value;
}
inline unsigned __ballot_sync(unsigned, int predicate) {
  const simt::Exchange& all = simt::Collect(predicate);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= (all.Of<int>(lane) != 0 ? 1u : 0u) << lane;
  return bits;
}
// NOLINTNEXTLINE(bugprone-reserved-identifier)
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  const simt::Exchange& all = simt::Collect(value);
  for (unsigned lane = 0; lane < 32; ++lane) value = std::max(value, all.Of<unsigned>(lane));
  return value;
}
// NOLINTNEXTLINE(bugprone-reserved-identifier)
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  const simt::Exchange& all = simt::Collect(value);
  for (unsigned lane = 0; lane < 32; ++lane) value = std::min(value, all.Of<unsigned>(lane));
  return value;
}
inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }

template <typename T>
T atomicAdd(T* address, T value) {
  const T before = *address;
  *address = before + value;
  return before;
}
template <typename T>
T atomicMax(T* address, T value) {
  const T before = *address;
  *address = std::max(before, value);
  return before;
}
template <typename T>
T atomicMin(T* address, T value) {
  const T before = *address;
  *address = std::min(before, value);
  return before;
}
template <typename T>
T atomicExch(T* address, T value) {
  const T before = *address;
  *address = value;
  return before;
}

template <typename T>
T __ldg(const T* address) {
  return *address;
}
inline float __uint_as_float(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t __float_as_uint(float value) { return std::bit_cast<uint32_t>(value); }
inline int __popc(uint32_t x) { return std::popcount(x); }
inline int __ffs(uint32_t x) { return x == 0 ? 0 : std::countr_zero(x) + 1; }
inline uint32_t __byte_perm(uint32_t low, uint32_t high, uint32_t selector) {
  const uint64_t both = (uint64_t{high} << 32) | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t byte = (both >> (8 * ((selector >> (4 * i)) & 7u))) & 0xffu;
    result |= byte << (8 * i);
  }
  return result;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return std::exp(x); }
using std::max;
using std::min;
