// The last payloads that were published, for listeners that have missed some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::router {

// Thread-safe.
class ReplayBuffer {
 public:
  using Payload = std::shared_ptr<const std::string>;
  struct Entry {
    uint64_t sequence;
    Payload payload;
  };

  // The buffer drops the oldest of more payloads or bytes. It always keeps the last one.
  ReplayBuffer(size_t max_payloads, size_t max_bytes)
      : max_payloads_(max_payloads), max_bytes_(max_bytes) {}

  void Add(uint64_t sequence, Payload payload) {
    const MutexLock lock(mutex_);
    n_bytes_ += payload->size();
    entries_.push_back({sequence, std::move(payload)});
    while (entries_.size() > 1 && (entries_.size() > max_payloads_ || n_bytes_ > max_bytes_)) {
      n_bytes_ -= entries_.front().payload->size();
      entries_.pop_front();
    }
  }

  // What is left of the payloads from this sequence number on.
  std::vector<Entry> From(uint64_t sequence) const {
    const MutexLock lock(mutex_);
    std::vector<Entry> found;
    for (const Entry& entry : entries_) {
      if (entry.sequence >= sequence) found.push_back(entry);
    }
    return found;
  }

 private:
  const size_t max_payloads_, max_bytes_;
  mutable Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  size_t n_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace stagecoach::router
