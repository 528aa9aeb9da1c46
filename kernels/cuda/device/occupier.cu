#include "kernels/cuda/device/occupier.h"

#include <algorithm>

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr uint64_t kLongestNs = 100'000'000;
// More than half of an SM's shared memory on Hopper, so that only one such CTA fits on an SM.
constexpr int kSharedBytes = 120 << 10;

struct Params {
  uint32_t* n_here;
  const uint32_t* released;
  uint32_t n;
};

__device__ uint64_t Now() {
  uint64_t ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

// One thread per CTA.
__global__ void HoldKernel(const Params p) {
  const uint64_t begin = Now();
  atomicAdd(p.n_here, 1u);
  while (*const_cast<const volatile uint32_t*>(p.released) == 0 && Now() - begin < kLongestNs) {
    __nanosleep(100);
  }
}

__global__ void AwaitKernel(const Params p) {
  const uint64_t begin = Now();
  while (*const_cast<volatile uint32_t*>(p.n_here) < p.n && Now() - begin < kLongestNs) {
    __nanosleep(100);
  }
}

}  // namespace

Occupier::~Occupier() {
  if (ended_ != nullptr) cudaEventDestroy(ended_);
  if (cleared_ != nullptr) cudaEventDestroy(cleared_);
  if (own_ != nullptr) cudaStreamDestroy(own_);
}

absl::Status Occupier::Init() {
  if (state_.data != nullptr) return absl::OkStatus();
  int device = 0, most = 0;
  SC_RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device), "no device"));
  SC_RETURN_IF_ERROR(ToStatus(
      cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device), "no limit"));
  shared_bytes_ = static_cast<size_t>(std::min(most, kSharedBytes));
  SC_RETURN_IF_ERROR(
      ToStatus(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking), "no stream"));
  SC_RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&cleared_, cudaEventDisableTiming), "no event"));
  SC_RETURN_IF_ERROR(
      ToStatus(cudaEventCreateWithFlags(&ended_, cudaEventDisableTiming), "no event"));
  SC_ASSIGN_OR_RETURN(state_, AllocateDevice(2 * sizeof(uint32_t)));
  return absl::OkStatus();
}

absl::Status Occupier::Take(const Stream& stream, int32_t n) {
  uint32_t* const state = state_.As<uint32_t>();
  const Params params{state, state + 1, static_cast<uint32_t>(n)};
  const Stream own{.handle = own_};
  const Stream one_by_one{
      .handle = stream.handle};  // no overlap: the next kernel starts after all SMs are held
  // `ended_` completes when the CTAs of the previous Take have ended. Before the first Take it
  // counts as complete.
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(stream.handle, ended_, 0), "cannot wait"));
  SC_RETURN_IF_ERROR(ToStatus(cudaMemsetAsync(state, 0, state_.bytes, stream.handle), "no memset"));
  SC_RETURN_IF_ERROR(ToStatus(cudaEventRecord(cleared_, stream.handle), "no event"));
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(own_, cleared_, 0), "cannot wait"));
  const LaunchShape hold{
      .grid = dim3(static_cast<unsigned>(n)), .block = dim3(1), .shared_bytes = shared_bytes_};
  SC_RETURN_IF_ERROR(ToStatus(Launch<&HoldKernel>(own, hold, params), "cannot hold"));
  SC_RETURN_IF_ERROR(ToStatus(cudaEventRecord(ended_, own_), "no event"));
  const LaunchShape await{.grid = dim3(1), .block = dim3(1)};
  return ToStatus(Launch<&AwaitKernel>(one_by_one, await, params), "cannot wait");
}

absl::Status Occupier::Release(const Stream& stream) {
  return ToStatus(cudaMemsetAsync(state_.As<uint32_t>() + 1, 1, sizeof(uint32_t), stream.handle),
                  "no memset");
}

}  // namespace stagecoach::kernels::cuda
