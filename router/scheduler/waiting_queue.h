// Sequences without a slot, in order of service. All operations are O(log n).
#pragma once

#include <cstdint>

#include "absl/container/btree_set.h"
#include "router/scheduler/sequence.h"

namespace stagecoach::router {

// Not thread-safe; does not own the sequences.
class WaitingQueue {
 public:
  void Add(Sequence* sequence);
  // REQUIRES: it is in the queue, with as many to prefill as when it was added.
  void Remove(Sequence* sequence);

  bool empty() const { return sequences_.empty(); }
  int32_t size() const { return static_cast<int32_t>(sequences_.size()); }
  // Those that never had a slot: what max_waiting bounds.
  int32_t n_new() const { return n_new_; }
  // Of their prompts: what max_waiting_tokens bounds.
  uint64_t n_new_tokens() const { return n_new_tokens_; }
  // Tokens; with what the prefix cache has of them where nothing asks for the number.
  uint64_t n_to_prefill() const { return n_to_prefill_; }
  // With a priority below, or above, 0.
  int32_t n_high() const { return n_high_; }
  int32_t n_low() const { return n_low_; }
  // REQUIRES: not empty.
  Sequence* first() const { return *sequences_.begin(); }

 private:
  void Count(const Sequence& sequence, int sign);

  absl::btree_set<Sequence*, ServedFirst> sequences_;
  int32_t n_new_ = 0;
  uint64_t n_new_tokens_ = 0;
  int32_t n_high_ = 0;
  int32_t n_low_ = 0;
  uint64_t n_to_prefill_ = 0;
};

}  // namespace stagecoach::router
