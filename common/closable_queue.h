// A queue between threads. Closing it with a reason wakes all waiting threads, which then return
// the reason.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/check.h"
#include "common/mutex.h"

namespace stagecoach {

// First in, first out. Thread-safe. Items are destroyed outside the queue's lock, so that their
// destructors may use the queue. T is default-constructible.
template <typename T>
class ClosableQueue {
 public:
  using Clock = std::chrono::steady_clock;
  // What Close does with the items that are still queued.
  enum class Rest : uint8_t { kDrop, kKeep };

  // Without a capacity limit: Push never waits for room. The memory is never returned; it is enough
  // for the largest number of items that were queued at the same time.
  ClosableQueue() = default;
  // With a capacity limit: allocates only here and in Reopen.
  explicit ClosableQueue(size_t capacity) : capacity_(capacity), ring_(capacity) {
    SC_CHECK(capacity > 0);
  }

  // Blocks while the queue is full. Once closed, drops the item and returns the reason.
  absl::Status Push(T item) {
    {
      MutexLock lock(mutex_);
      has_room_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !closed_.ok() || size_ < capacity_;
      });
      if (!closed_.ok()) return closed_;
      Append(std::move(item));
    }
    has_items_.notify_one();
    return absl::OkStatus();
  }

  // Adds make(0) to make(n_items - 1) at once: a consumer sees all of them or none. Calls `make`
  // under the lock. Only for queues without a capacity limit. Once closed, returns the reason.
  template <typename Make>
  absl::Status PushAll(size_t n_items, Make make) {
    SC_CHECK(capacity_ == kUnbounded);
    {
      const MutexLock lock(mutex_);
      if (!closed_.ok()) return closed_;
      for (size_t i = 0; i < n_items; ++i) Append(make(i));
    }
    has_items_.notify_all();
    return absl::OkStatus();
  }

  // Blocks while the queue is empty. Returns the reason once closed and empty.
  absl::StatusOr<T> Pop() {
    MutexLock lock(mutex_);
    AwaitItems(lock);
    if (size_ == 0) return closed_;
    absl::StatusOr<T> item = TakeFirst();
    lock.unlock();
    has_room_.notify_one();
    return item;
  }

  // Like Pop. Returns DEADLINE_EXCEEDED if the queue is still empty at `deadline`.
  absl::StatusOr<T> PopUntil(Clock::time_point deadline) {
    // wait_until may add to the deadline, and time_point::max() would overflow into the past.
    if (deadline == Clock::time_point::max()) return Pop();
    MutexLock lock(mutex_);
    if (!AwaitItemsUntil(lock, deadline)) {
      return absl::DeadlineExceededError("nothing was queued in time");
    }
    if (size_ == 0) return closed_;
    absl::StatusOr<T> item = TakeFirst();
    lock.unlock();
    has_room_.notify_one();
    return item;
  }

  // Blocks while the queue is empty; takes nothing, so it is useful only to a queue's only
  // consumer. Returns the reason once closed and empty.
  absl::Status Wait() {
    MutexLock lock(mutex_);
    AwaitItems(lock);
    return size_ > 0 ? absl::OkStatus() : closed_;
  }

  // Like Wait. Returns DEADLINE_EXCEEDED if the queue is still empty at `deadline`.
  absl::Status WaitUntil(Clock::time_point deadline) {
    // See PopUntil.
    if (deadline == Clock::time_point::max()) return Wait();
    MutexLock lock(mutex_);
    if (!AwaitItemsUntil(lock, deadline)) {
      return absl::DeadlineExceededError("nothing was queued in time");
    }
    return size_ > 0 ? absl::OkStatus() : closed_;
  }

  // Replaces the content of `items` with all queued items, in order; there may be none. Never waits
  // for items. Reuses the capacity of `items`.
  void TakeAll(std::vector<T>* items) {
    items->clear();
    {
      const MutexLock lock(mutex_);
      while (size_ > 0) items->push_back(TakeFirst());
    }
    has_room_.notify_all();
  }

  // `reason` is an error; the first one is kept. kDrop drops the queued items, also at a second
  // Close. After kKeep they can still be taken.
  void Close(absl::Status reason, Rest rest = Rest::kDrop) {
    SC_CHECK(!reason.ok());
    std::vector<T> dropped;
    {
      const MutexLock lock(mutex_);
      if (closed_.ok()) closed_ = std::move(reason);
      if (rest == Rest::kDrop) Drop(&dropped);
    }
    has_items_.notify_all();
    has_room_.notify_all();
  }

  // Makes a closed queue usable again and empty.
  void Reopen() {
    std::vector<T> dropped;
    const MutexLock lock(mutex_);
    closed_ = absl::OkStatus();
    Drop(&dropped);
    if (capacity_ != kUnbounded) ring_.resize(capacity_);
  }

  size_t size() const {
    const MutexLock lock(mutex_);
    return size_;
  }

 private:
  static constexpr size_t kUnbounded = std::numeric_limits<size_t>::max();

  void AwaitItems(MutexLock& lock) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    has_items_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !closed_.ok() || size_ > 0;
    });
  }

  // False: neither items nor the end came by then.
  bool AwaitItemsUntil(MutexLock& lock, Clock::time_point deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return has_items_.wait_until(lock, deadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !closed_.ok() || size_ > 0;
    });
  }

  void Append(T item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (size_ == ring_.size()) Grow();
    ring_[(first_ + size_++) % ring_.size()] = std::move(item);
  }

  T TakeFirst() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    T item = std::exchange(ring_[first_], T{});
    first_ = (first_ + 1) % ring_.size();
    --size_;
    return item;
  }

  void Grow() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<T> larger(std::max<size_t>(16, 2 * ring_.size()));
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(ring_[(first_ + i) % ring_.size()]);
    ring_.swap(larger);
    first_ = 0;
  }

  void Drop(std::vector<T>* dropped) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    dropped->swap(ring_);
    first_ = size_ = 0;
  }

  const size_t capacity_ = kUnbounded;
  mutable Mutex mutex_;
  CondVar has_items_, has_room_;
  std::vector<T> ring_ ABSL_GUARDED_BY(mutex_);
  size_t first_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t size_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach
