// Detects whether a queue on the device makes progress. Given the numbers of queued and finished
// operations, it reports for how long none has finished although one was waiting.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace stagecoach::worker {

// How long a due message may take: all stages may first work on the message's step, and before that
// finish what they were doing when it became due.
constexpr std::chrono::milliseconds StallLimit(std::chrono::milliseconds longest_step,
                                               int32_t n_stages) {
  return longest_step * (n_stages + 2);
}

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // Returns how many of the n_queued operations are done, in order. Each of the last n_slots
  // operations has an event in its slot: is_done(slot). Older operations are done, because their
  // slots have been used again.
  template <typename IsDone>
  static uint64_t CountDone(uint64_t n_queued, uint64_t n_slots, const IsDone& is_done) {
    const uint64_t n_known = std::min(n_queued, n_slots);
    uint64_t n_done = n_queued;
    while (n_done > n_queued - n_known && !is_done((n_done - 1) % n_slots)) --n_done;
    return n_done;
  }

  // How long the oldest unfinished operation has been the oldest.
  Clock::duration Stalled(uint64_t n_queued, uint64_t n_done, Clock::time_point now) {
    if (n_queued == n_done || n_done != n_done_ || !waits_) since_ = now;
    waits_ = n_queued != n_done;
    n_done_ = n_done;
    return now - since_;
  }

 private:
  uint64_t n_done_ = 0;
  bool waits_ = false;
  Clock::time_point since_{};
};

}  // namespace stagecoach::worker
