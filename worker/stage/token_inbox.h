// Passes sampled tokens to the compute thread, from the tokens channel or from a step that has
// ended on this stage. It has no capacity limit, because the pipeline's depth bounds its content. A
// blocking sender could deadlock with a stage that waits for it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "worker/stage/sampler.h"

namespace stagecoach::worker {

struct ArrivedToken {
  uint64_t step = 0;  // the step that sampled it
  TokenRecord record{};
};

class TokenInbox {
 public:
  // Adds the tokens that `step` sampled.
  void Put(uint64_t step, std::span<const TokenRecord> tokens) {
    std::lock_guard lock(mutex_);
    for (const TokenRecord& token : tokens) arrived_.push_back({step, token});
    changed_.notify_all();
  }

  // Swaps the tokens that have arrived into `out`; there may be none. Reuses the capacity of `out`.
  void Take(std::vector<ArrivedToken>* out) {
    out->clear();
    std::lock_guard lock(mutex_);
    arrived_.swap(*out);
  }

  // Blocks until a token has arrived. Returns the reason after Close.
  absl::Status Wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !closed_.ok() || !arrived_.empty(); });
    return closed_;
  }

  void Close(absl::Status reason) {
    std::lock_guard lock(mutex_);
    if (closed_.ok()) closed_ = std::move(reason);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ArrivedToken> arrived_;  // the rest: guarded by mutex_
  absl::Status closed_;
};

}  // namespace stagecoach::worker
