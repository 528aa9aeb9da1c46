// memcpy by several threads: one alone does not keep up with the bus.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

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
  std::mutex mutex_;
  std::condition_variable changed_;
  // The rest: guarded by mutex_. Helper i copies part i + 1 of kHelpers + 1.
  const char* from_ = nullptr;
  char* to_ = nullptr;
  size_t bytes_ = 0;
  size_t n_copies_ = 0;   // begun
  size_t n_working_ = 0;  // helpers
  bool stopping_ = false;
};

}  // namespace stagecoach::kernels::cuda
