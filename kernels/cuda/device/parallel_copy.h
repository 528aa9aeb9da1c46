// memcpy by several threads: one alone does not keep up with the bus.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::kernels::cuda {

// One thread at a time copies. The helpers start with the first large copy.
class ParallelCopy {
 public:
  ParallelCopy() = default;
  ParallelCopy(const ParallelCopy&) = delete;
  ParallelCopy& operator=(const ParallelCopy&) = delete;
  ~ParallelCopy();

  void Copy(const void* from, void* to, size_t bytes);

 private:
  static constexpr size_t kHelpers = 3;

  void Start();
  void Help(size_t helper);

  std::vector<std::thread> helpers_;
  Mutex mutex_;
  CondVar changed_;
  // Helper i copies part i + 1 of kHelpers + 1.
  const char* from_ ABSL_GUARDED_BY(mutex_) = nullptr;
  char* to_ ABSL_GUARDED_BY(mutex_) = nullptr;
  size_t bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t n_copies_ ABSL_GUARDED_BY(mutex_) = 0;   // begun
  size_t n_working_ ABSL_GUARDED_BY(mutex_) = 0;  // helpers
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::kernels::cuda
