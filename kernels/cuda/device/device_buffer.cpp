#include "kernels/cuda/device/device_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "common/mapped_pages.h"
#include "common/size.h"

namespace stagecoach::kernels::cuda {

absl::Status ToStatus(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return absl::OkStatus();
  return absl::InternalError(fmt::format("CUDA: {}: {}", what, cudaGetErrorString(error)));
}

absl::StatusOr<Buffer> AllocateDevice(size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (error == cudaSuccess) {
    return Buffer{std::shared_ptr<void>(data, [](void* memory) { cudaFree(memory); }), bytes};
  }
  cudaGetLastError();  // clears the error, so that later calls do not return it
  if (error != cudaErrorMemoryAllocation) return ToStatus(error, "cannot allocate memory");
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return absl::ResourceExhaustedError(fmt::format("the GPU has no {} left: {} of {} are free",
                                                  FormatBytes(bytes), FormatBytes(free),
                                                  FormatBytes(total)));
}

namespace {

// cudaHostAlloc asks the OS for one small page after the other, on one thread: 2.5 GB/s. Large
// memory is faster from large pages that several threads ask for: 17 GB/s.
constexpr size_t kLarge = size_t{64} << 20;
constexpr size_t kThreads = 8;

// Null data: there is not so much memory, or it may not be locked.
Buffer AllocateLargePinned(size_t bytes) {
  std::shared_ptr<void> pages = MapPages(bytes);
  if (pages == nullptr) return {};
  madvise(pages.get(), bytes, MADV_HUGEPAGE);
  {
    constexpr size_t kPage = 4096;
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        auto* const all = static_cast<volatile char*>(pages.get());
        for (size_t at = bytes / kThreads * i; at < bytes / kThreads * (i + 1); at += kPage) {
          all[at] = 0;
        }
      });
    }
  }
  if (cudaHostRegister(pages.get(), bytes, cudaHostRegisterDefault) != cudaSuccess) {
    cudaGetLastError();
    return {};
  }
  // The deleter holds the pages until they are registered no more.
  return {
      .data = std::shared_ptr<void>(pages.get(), [pages](void* data) { cudaHostUnregister(data); }),
      .bytes = bytes};
}

}  // namespace

absl::StatusOr<Buffer> AllocatePinned(size_t bytes) {
  void* data = nullptr;
  if (bytes >= kLarge) {
    if (Buffer buffer = AllocateLargePinned(bytes); buffer.data != nullptr) return buffer;
  } else if (cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocDefault) ==
             cudaSuccess) {
    return Buffer{std::shared_ptr<void>(data, [](void* memory) { cudaFreeHost(memory); }), bytes};
  }
  cudaGetLastError();
  return absl::ResourceExhaustedError(
      fmt::format("no {} of host memory that the GPU reaches (see ulimit -l)", FormatBytes(bytes)));
}

}  // namespace stagecoach::kernels::cuda
