// The only queue through which other threads send messages to an owner thread. Many producers, one
// consumer.
#pragma once

#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace stagecoach::router {

template <typename Message>
class Mailbox {
 public:
  // Any thread; blocks for no longer than a move of `message`. After Close, drops the message.
  void Post(Message message) {
    bool was_empty;
    {
      std::lock_guard lock(mutex_);
      if (closed_) return;
      was_empty = messages_.empty();
      messages_.push_back(std::move(message));
    }
    if (was_empty) arrived_.notify_one();
  }

  // Owner thread: blocks until there is at least one message, then moves all messages, in the order
  // of posting, into `messages` (and reuses its capacity).
  void TakeAll(std::vector<Message>& messages) {
    messages.clear();
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !messages_.empty(); });
    messages.swap(messages_);
  }

  // Owner thread: takes the remaining messages. None come later.
  void Close(std::vector<Message>& messages) {
    messages.clear();
    std::lock_guard lock(mutex_);
    closed_ = true;
    messages.swap(messages_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Message> messages_;  // guarded by mutex_, as is closed_
  bool closed_ = false;
};

}  // namespace stagecoach::router
