// Whether the router must not get new requests: a stage or a thread is stalled, or a lost stage is
// being replaced.
#pragma once

#include <functional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"

namespace stagecoach::router {

// Forwards stall changes, of stages, of the whole pipeline and of the router's threads, to a server
// that lives shorter than the watches.
class StallSwitch {
 public:
  using Listener = std::function<void(bool stalled)>;

  void SetStages(bool stalled) { Set(&StallSwitch::stages_, stalled); }
  void SetThreads(bool stalled) { Set(&StallSwitch::threads_, stalled); }
  void SetRecovering(bool recovering) { Set(&StallSwitch::recovering_, recovering); }

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
  void Set(bool StallSwitch::* which, bool stalled) {
    const MutexLock lock(mutex_);
    this->*which = stalled;
    if (listener_) listener_(Any());
  }
  bool Any() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stages_ || threads_ || recovering_;
  }

  Mutex mutex_;
  Listener listener_ ABSL_GUARDED_BY(mutex_);
  bool stages_ ABSL_GUARDED_BY(mutex_) = false;
  bool threads_ ABSL_GUARDED_BY(mutex_) = false;
  bool recovering_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::router
