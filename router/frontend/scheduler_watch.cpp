#include "router/frontend/scheduler_watch.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <future>
#include <memory>
#include <utility>

namespace stagecoach::router {
namespace {

// A look that comes so much later than it should: the process itself was stopped meanwhile.
constexpr int kLateTicks = 5;

std::string Words(SchedulerWatchLimits::Duration waited) {
  return fmt::format("the router's scheduler has not answered for {:.1f} s",
                     std::chrono::duration<double>(waited).count());
}

}  // namespace

SchedulerWatch::SchedulerWatch(Ask ask, const SchedulerWatchLimits& limits,
                               SchedulerWatchHooks hooks)
    : ask_(std::move(ask)), limits_(limits), hooks_(std::move(hooks)), thread_([this] { Run(); }) {}

SchedulerWatch::Ask SchedulerWatch::ForSnapshots(Scheduler* scheduler) {
  return [scheduler]() -> std::function<bool()> {
    const auto snapshot = std::make_shared<std::future<SchedulerSnapshot>>(scheduler->Snapshot());
    return [snapshot] {
      return snapshot->wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    };
  };
}

std::string SchedulerWatch::Stalled() const {
  const std::lock_guard lock(mutex_);
  return stalled_;
}

void SchedulerWatch::End() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  ending_changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SchedulerWatch::Change(const std::string& stalled, std::unique_lock<std::mutex>& lock) {
  stalled_ = stalled;
  lock.unlock();
  spdlog::warn("{}", stalled.empty() ? "the scheduler goes on" : stalled);
  if (hooks_.on_change) hooks_.on_change(!stalled.empty());
  lock.lock();
}

bool SchedulerWatch::Await(const std::function<bool()>& answered,
                           std::unique_lock<std::mutex>& lock) {
  Clock::time_point asked = Clock::now();
  Clock::time_point last_look = asked;
  while (!answered()) {
    if (ending_changed_.wait_for(lock, limits_.tick, [this] { return ending_; })) return false;
    const Clock::time_point now = Clock::now();
    if (now - last_look > kLateTicks * limits_.tick) asked += now - last_look;
    last_look = now;
    const Clock::duration waited = now - asked;
    if (waited > limits_.end) {
      lock.unlock();
      if (hooks_.on_lost) hooks_.on_lost(Words(waited));
      lock.lock();
      return false;
    }
    if (waited <= limits_.notice) continue;
    if (stalled_.empty()) {
      Change(Words(waited), lock);
    } else {
      stalled_ = Words(waited);
    }
  }
  if (!stalled_.empty()) Change("", lock);
  return true;
}

void SchedulerWatch::Run() {
  pthread_setname_np(pthread_self(), "scheduler watch");
  std::unique_lock lock(mutex_);
  do {
    lock.unlock();
    const std::function<bool()> answered = ask_();
    lock.lock();
    if (!Await(answered, lock)) return;
  } while (!ending_changed_.wait_for(lock, limits_.interval, [this] { return ending_; }));
}

}  // namespace stagecoach::router
