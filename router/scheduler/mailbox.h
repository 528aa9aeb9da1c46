// The one queue through which other threads reach an owner thread. Many producers, one consumer.
#pragma once

#include <utility>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::router {

template <typename Message>
class Mailbox {
 public:
  // From any thread; never blocks for longer than a move of `message`. Once closed it goes nowhere.
  void Post(Message message) {
    bool was_empty;
    {
      MutexLock lock(mutex_);
      if (closed_) return;
      was_empty = messages_.empty();
      messages_.push_back(std::move(message));
    }
    if (was_empty) arrived_.notify_one();
  }

  // Owner thread: blocks until there is at least one message, then moves all of them, in order of
  // posting, into `messages` (whose capacity is recycled).
  void TakeAll(std::vector<Message>& messages) {
    messages.clear();
    MutexLock lock(mutex_);
    arrived_.wait(lock,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !messages_.empty(); });
    messages.swap(messages_);
  }

  // Owner thread: takes what there is, the last that will ever be.
  void Close(std::vector<Message>& messages) {
    messages.clear();
    MutexLock lock(mutex_);
    closed_ = true;
    messages.swap(messages_);
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::vector<Message> messages_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::router
