#include "kernels/cuda/device/parallel_copy.h"

#include <algorithm>
#include <cstring>

namespace stagecoach::kernels::cuda {
namespace {

constexpr size_t kWorthHelp = size_t{1} << 20;

}  // namespace

ParallelCopy::~ParallelCopy() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  for (std::thread& helper : helpers_) helper.join();
}

void ParallelCopy::Start() {
  const size_t n = std::clamp<size_t>(std::thread::hardware_concurrency(), 2, kMostHelpers + 1) - 1;
  // Helpers read the number of parts once there is a copy.
  for (size_t i = 0; i < n; ++i) helpers_.emplace_back([this, i] { Help(i); });
}

void ParallelCopy::Copy(const void* from, void* to, size_t bytes) {
  if (bytes < kWorthHelp) {
    std::memcpy(to, from, bytes);
    return;
  }
  if (helpers_.empty()) Start();
  {
    const MutexLock lock(mutex_);
    from_ = static_cast<const char*>(from);
    to_ = static_cast<char*>(to);
    bytes_ = bytes;
    n_working_ = helpers_.size();
    ++n_copies_;
    changed_.notify_all();
  }
  std::memcpy(to, from, bytes / n_parts());
  MutexLock lock(mutex_);
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return n_working_ == 0; });
}

void ParallelCopy::Help(size_t helper) {
  size_t n_seen = 0;
  MutexLock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return stopping_ || n_copies_ > n_seen;
    });
    if (stopping_) return;
    n_seen = n_copies_;
    const size_t begin = bytes_ * (helper + 1) / n_parts();
    const size_t end = bytes_ * (helper + 2) / n_parts();
    const char* const from = from_;
    char* const to = to_;
    lock.unlock();
    std::memcpy(to + begin, from + begin, end - begin);
    lock.lock();
    if (--n_working_ == 0) changed_.notify_all();
  }
}

}  // namespace stagecoach::kernels::cuda
