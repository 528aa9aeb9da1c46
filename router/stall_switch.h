// Whether the router must not get new requests: one of its threads is stalled, or every pipeline
// has a stalled stage or is lost.
#pragma once

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace stagecoach::router {

// Forwards changes, of pipelines and of the router's threads, to a server that lives shorter than
// the watches. Thread-safe.
class StallSwitch {
 public:
  using Listener = std::function<void(bool stalled)>;

  // A pipeline counts from the first call with its number.
  void SetStalled(size_t pipeline, bool stalled) {
    Set([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Of(pipeline).stalled = stalled; });
  }
  void SetLost(size_t pipeline, bool lost) {
    Set([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { Of(pipeline).lost = lost; });
  }
  void SetThreads(bool stalled) {
    Set([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { threads_ = stalled; });
  }

  // Calls the listener with the current state, then with every change while this object lives.
  class Listening {
   public:
    Listening(StallSwitch* owner, Listener listener) : owner_(owner) {
      const MutexLock lock(owner_->mutex_);
      owner_->listener_ = std::move(listener);
      owner_->listener_(owner_->Any());
    }
    ~Listening() {
      const MutexLock lock(owner_->mutex_);
      owner_->listener_ = nullptr;
    }
    Listening(const Listening&) = delete;
    Listening& operator=(const Listening&) = delete;

   private:
    StallSwitch* const owner_;
  };

 private:
  struct PipelineTrouble {
    bool stalled = false;
    bool lost = false;
  };

  template <typename Change>
  void Set(const Change& change) {
    const MutexLock lock(mutex_);
    change();
    if (listener_) listener_(Any());
  }
  PipelineTrouble& Of(size_t pipeline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (pipeline >= pipelines_.size()) pipelines_.resize(pipeline + 1);
    return pipelines_[pipeline];
  }
  bool Any() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return threads_ || std::all_of(pipelines_.begin(), pipelines_.end(), [](const auto& pipeline) {
             return pipeline.stalled || pipeline.lost;
           });
  }

  Mutex mutex_;
  Listener listener_ ABSL_GUARDED_BY(mutex_);
  std::vector<PipelineTrouble> pipelines_ ABSL_GUARDED_BY(mutex_);
  bool threads_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::router
