// A list that only grows, and that other threads read meanwhile without a lock.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "common/check.h"

namespace stagecoach {

// Elements stay where they are until the list is destroyed. One thread at a time may append; all
// others may call everything else.
template <typename T, size_t kMost>
class AppendOnly {
 public:
  // REQUIRES: not full.
  T& Append(std::unique_ptr<T> element) {
    const size_t n = n_.load(std::memory_order_relaxed);
    SC_CHECK(n < kMost);
    elements_[n] = std::move(element);
    n_.store(n + 1, std::memory_order_release);
    return *elements_[n];
  }
  size_t size() const { return n_.load(std::memory_order_acquire); }
  bool is_full() const { return size() == kMost; }
  // REQUIRES: index < size().
  T& operator[](size_t index) const { return *elements_[index]; }

 private:
  std::array<std::unique_ptr<T>, kMost> elements_;
  std::atomic<size_t> n_{0};
};

}  // namespace stagecoach
