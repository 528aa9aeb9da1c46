// Sampled tokens on their way to the compute thread, from the tokens channel or from a step that
// has ended on this stage. Never full: the pipeline's depth bounds what is in it, and a sender that
// blocked here could wait for a stage that waits for it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "worker/stage/sampler.h"

namespace stagecoach::worker {

struct ArrivedToken {
  uint64_t step = 0;  // that sampled it
  TokenRecord record{};
};

class TokenInbox {
 public:
  // What `step` sampled.
  void Put(uint64_t step, std::span<const TokenRecord> tokens) {
    MutexLock lock(mutex_);
    for (const TokenRecord& token : tokens) arrived_.push_back({step, token});
    changed_.notify_all();
  }

  // What has arrived, swapped into `out`; may be nothing. Capacity goes round.
  void Take(std::vector<ArrivedToken>* out) {
    out->clear();
    MutexLock lock(mutex_);
    arrived_.swap(*out);
  }

  // Blocks until something has arrived. The reason once closed.
  absl::Status Wait() {
    MutexLock lock(mutex_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return !closed_.ok() || !arrived_.empty();
    });
    return closed_;
  }

  void Close(absl::Status reason) {
    MutexLock lock(mutex_);
    if (closed_.ok()) closed_ = std::move(reason);
    changed_.notify_all();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::vector<ArrivedToken> arrived_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace stagecoach::worker
