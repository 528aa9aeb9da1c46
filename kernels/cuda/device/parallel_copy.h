// memcpy by several threads, because one thread does not saturate the PCIe bus. A thread copies 3
// to 4 GB/s out of a mapped file in the page cache, whose pages it maps meanwhile.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::kernels::cuda {

// Only one thread at a time may call Copy. The helper threads start with the first copy of 1 MiB or
// more.
class ParallelCopy {
 public:
  ParallelCopy() = default;
  ParallelCopy(const ParallelCopy&) = delete;
  ParallelCopy& operator=(const ParallelCopy&) = delete;
  ~ParallelCopy();

  void Copy(const void* from, void* to, size_t bytes);

 private:
  static constexpr size_t kMostHelpers = 7;

  void Start();
  size_t n_parts() const { return helpers_.size() + 1; }
  void Help(size_t helper);

  std::vector<std::thread> helpers_;
  Mutex mutex_;
  CondVar changed_;
  // Helper i copies part i + 1 of n_parts(); the caller copies part 0.
  const char* from_ ABSL_GUARDED_BY(mutex_) = nullptr;
  char* to_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_copies_ ABSL_GUARDED_BY(mutex_) = 0;   // copies started
  size_t n_working_ ABSL_GUARDED_BY(mutex_) = 0;  // helpers still copying
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::kernels::cuda
