// A bounded queue between threads that can be closed with a reason: whoever waits then gets it.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/mutex.h"

namespace stagecoach::worker {

template <typename T>
class ClosableQueue {
 public:
  explicit ClosableQueue(size_t capacity) : ring_(capacity) { SC_CHECK(capacity > 0); }

  // Blocks while the queue is full. The reason once closed.
  absl::Status Push(T item) {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !closed_.ok() || size_ < ring_.size();
    });
    if (!closed_.ok()) return closed_;
    ring_[(first_ + size_++) % ring_.size()] = std::move(item);
    changed_.notify_all();
    return absl::OkStatus();
  }

  // Blocks while the queue is empty. The reason once closed.
  absl::StatusOr<T> Pop() {
    MutexLock lock(mutex_);
    changed_.wait(
        lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !closed_.ok() || size_ > 0; });
    if (!closed_.ok()) return closed_;
    T item = std::exchange(ring_[first_], T{});
    first_ = (first_ + 1) % ring_.size();
    --size_;
    changed_.notify_all();
    return item;
  }

  // Drops what is queued. `reason` is an error; the first one stays.
  void Close(absl::Status reason) {
    SC_CHECK(!reason.ok());
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    closed_ = std::move(reason);
    Clear();
    changed_.notify_all();
  }

  // Makes a closed queue usable again, empty.
  void Reopen() {
    MutexLock lock(mutex_);
    closed_ = absl::OkStatus();
    Clear();
  }

  size_t size() const {
    MutexLock lock(mutex_);
    return size_;
  }

 private:
  void Clear() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (T& item : ring_) item = T{};
    first_ = size_ = 0;
  }

  mutable Mutex mutex_;
  CondVar changed_;
  std::vector<T> ring_ ABSL_GUARDED_BY(mutex_);
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::worker
