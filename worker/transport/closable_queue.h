// A bounded queue between threads. Closing it with a reason wakes all waiting threads, which then
// return the reason.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"

namespace stagecoach::worker {

template <typename T>
class ClosableQueue {
 public:
  explicit ClosableQueue(size_t capacity) : ring_(capacity) { SC_CHECK(capacity > 0); }

  // Blocks while the queue is full. Returns the reason once closed.
  absl::Status Push(T item) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !closed_.ok() || size_ < ring_.size(); });
    if (!closed_.ok()) return closed_;
    ring_[(first_ + size_++) % ring_.size()] = std::move(item);
    changed_.notify_all();
    return absl::OkStatus();
  }

  // Blocks while the queue is empty. Returns the reason once closed.
  absl::StatusOr<T> Pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !closed_.ok() || size_ > 0; });
    if (!closed_.ok()) return closed_;
    T item = std::exchange(ring_[first_], T{});
    first_ = (first_ + 1) % ring_.size();
    --size_;
    changed_.notify_all();
    return item;
  }

  // Drops the queued items. `reason` is an error; the first one is kept.
  void Close(absl::Status reason) {
    SC_CHECK(!reason.ok());
    std::lock_guard lock(mutex_);
    if (!closed_.ok()) return;
    closed_ = std::move(reason);
    Clear();
    changed_.notify_all();
  }

  // Makes a closed queue usable again and empty.
  void Reopen() {
    std::lock_guard lock(mutex_);
    closed_ = absl::OkStatus();
    Clear();
  }

  size_t size() const {
    std::lock_guard lock(mutex_);
    return size_;
  }

 private:
  void Clear() {
    for (T& item : ring_) item = T{};
    first_ = size_ = 0;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<T> ring_;  // the rest: guarded by mutex_
  size_t first_ = 0;
  size_t size_ = 0;
  absl::Status closed_;
};

}  // namespace stagecoach::worker
