#include "router/frontend/message_gate.h"

#include <algorithm>
#include <utility>

namespace stagecoach::router {

MessageGate::MessageGate(size_t n_places, size_t max_waiting, std::chrono::milliseconds patience)
    : n_places_(n_places),
      max_waiting_(max_waiting),
      patience_(patience),
      watch_([this] { Watch(); }) {}

MessageGate::~MessageGate() {
  {
    MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  watch_.join();
}

void MessageGate::Enter(Message message, Ticket* ticket) {
  std::vector<std::function<void()>> now_receive;
  std::function<void()> refuse;
  {
    MutexLock lock(mutex_);
    *ticket = ++last_ticket_;
    if (waiting_.size() >= max_waiting_) {
      refuse = std::move(message.refuse);
    } else {
      waiting_.push_back({*ticket, std::move(message)});
      FillPlaces(now_receive);
    }
  }
  changed_.notify_all();
  if (refuse) return refuse();
  for (const auto& receive : now_receive) receive();
}

bool MessageGate::Leave(Ticket ticket) {
  std::vector<std::function<void()>> now_receive;
  bool was_here = false;
  {
    MutexLock lock(mutex_);
    const auto is_it = [ticket](const auto& entry) { return entry.ticket == ticket; };
    was_here = places_.remove_if(is_it) + waiting_.remove_if(is_it) > 0;
    FillPlaces(now_receive);
  }
  for (const auto& receive : now_receive) receive();
  return was_here;
}

void MessageGate::FillPlaces(std::vector<std::function<void()>>& now_receive) {
  while (places_.size() < n_places_ && !waiting_.empty()) {
    const auto n_places = [this](const Waiting& waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return std::count_if(places_.begin(), places_.end(), [&](const Place& place) {
        return place.message.tenant == waiting.message.tenant;
      });
    };
    // The first of those with the fewest, so the oldest.
    const auto next = std::min_element(
        waiting_.begin(), waiting_.end(),
        [&](const Waiting& a, const Waiting& b)
            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return n_places(a) < n_places(b); });
    places_.push_back({next->ticket, std::move(next->message), Clock::now()});
    waiting_.erase(next);
    now_receive.push_back(places_.back().message.receive);
  }
}

void MessageGate::Watch() {
  MutexLock lock(mutex_);
  while (!ending_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      continue;
    }
    // Places are all taken, because messages wait.
    const Clock::time_point limit = places_.front().since + patience_;
    if (Clock::now() < limit) {
      changed_.wait_until(lock, limit);
      continue;
    }
    std::function<void()> refuse = std::move(places_.front().message.refuse);
    places_.pop_front();
    std::vector<std::function<void()>> now_receive;
    FillPlaces(now_receive);
    lock.unlock();
    refuse();
    for (const auto& receive : now_receive) receive();
    lock.lock();
  }
}

}  // namespace stagecoach::router
