// Whether a queue on the device moves: told how much is queued and done, says for how long nothing
// was done although something waited.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace stagecoach::worker {

// How long what is due may take: a step's message may have all stages' work on that step before it,
// and what they were at when it became due.
constexpr std::chrono::milliseconds StallLimit(std::chrono::milliseconds longest_step,
                                               int32_t n_stages) {
  return longest_step * (n_stages + 2);
}

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  // How many of the n_queued are done, in order; of the last n_slots each slot's event says so:
  // is_done(slot). Older ones are, or their slots were not used again.
  template <typename IsDone>
  static uint64_t CountDone(uint64_t n_queued, uint64_t n_slots, const IsDone& is_done) {
    const uint64_t n_known = std::min(n_queued, n_slots);
    uint64_t n_done = n_queued;
    while (n_done > n_queued - n_known && !is_done((n_done - 1) % n_slots)) --n_done;
    return n_done;
  }

  // How long the oldest of what is queued has been the oldest.
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
