// Limits how many gRPC messages are received at a time. gRPC buffers a message in full, and tells
// its size only afterwards, so only their number can bound the memory of messages under way.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace stagecoach::router {

// A message enters, is received, and leaves. While all places are taken, messages wait; a place
// goes to the tenant that has the fewest, then to the message that waits longest. A message that
// takes longer than `patience` while others wait loses its place. Thread-safe.
class MessageGate {
 public:
  struct Message {
    std::string tenant;
    std::function<void()> receive;  // it has a place now
    std::function<void()> refuse;   // it lost its place, or too many messages wait
  };
  // A message's number, for Leave.
  using Ticket = uint64_t;

  explicit MessageGate(size_t n_places = 4, size_t max_waiting = 8192,
                       std::chrono::milliseconds patience = std::chrono::seconds(2));
  ~MessageGate();
  MessageGate(const MessageGate&) = delete;
  MessageGate& operator=(const MessageGate&) = delete;

  // Calls one of the message's functions, now or later. Either may run before Enter returns, and
  // `receive` may call Leave, so the ticket is stored in `*ticket` first.
  void Enter(Message message, Ticket* ticket);
  // The message is here, or its call has ended. False: it was refused, or is about to be.
  bool Leave(Ticket ticket);

 private:
  using Clock = std::chrono::steady_clock;
  struct Place {
    Ticket ticket;
    Message message;
    Clock::time_point since;
  };
  struct Waiting {
    Ticket ticket;
    Message message;
  };

  // Moves waiting messages to free places; `now_receive` gets the functions
  // to call without the lock.
  void FillPlaces(std::vector<std::function<void()>>& now_receive)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Expels slow messages while others wait.
  void Watch();

  const size_t n_places_;
  const size_t max_waiting_;
  const std::chrono::milliseconds patience_;
  Mutex mutex_;
  CondVar changed_;
  Ticket last_ticket_ ABSL_GUARDED_BY(mutex_) = 0;
  std::list<Place> places_ ABSL_GUARDED_BY(mutex_);     // oldest first
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // oldest first
  bool ending_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watch_;  // last: it uses the others
};

}  // namespace stagecoach::router
