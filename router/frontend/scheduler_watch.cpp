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
  const MutexLock lock(mutex_);
  return stalled_;
}

void SchedulerWatch::End() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  ending_changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void SchedulerWatch::SetStalled(const std::string& stalled) {
  bool was_stalled = false;
  {
    const MutexLock lock(mutex_);
    was_stalled = !stalled_.empty();
    stalled_ = stalled;
  }
  const bool is_stalled = !stalled.empty();
  if (is_stalled == was_stalled) return;
  spdlog::warn("{}", is_stalled ? stalled : "the scheduler goes on");
  if (hooks_.on_change) hooks_.on_change(is_stalled);
}

bool SchedulerWatch::EndsWithin(Clock::duration time) {
  MutexLock lock(mutex_);
  return ending_changed_.wait_for(
      lock, time, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ending_; });
}

bool SchedulerWatch::Await(const std::function<bool()>& answered) {
  Clock::time_point asked = Clock::now();
  Clock::time_point last_look = asked;
  while (!answered()) {
    if (EndsWithin(limits_.tick)) return false;
    const Clock::time_point now = Clock::now();
    if (now - last_look > kLateTicks * limits_.tick) asked += now - last_look;
    last_look = now;
    const Clock::duration waited = now - asked;
    if (waited > limits_.end) {
      if (hooks_.on_lost) hooks_.on_lost(Words(waited));
      return false;
    }
    if (waited > limits_.notice) SetStalled(Words(waited));
  }
  SetStalled("");
  return true;
}

void SchedulerWatch::Run() {
  pthread_setname_np(pthread_self(), "scheduler watch");
  do {
    if (!Await(ask_())) return;
  } while (!EndsWithin(limits_.interval));
}

}  // namespace stagecoach::router
