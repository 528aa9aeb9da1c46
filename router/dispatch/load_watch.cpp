#include "router/dispatch/load_watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "common/mutex.h"
#include "common/size.h"

namespace stagecoach::router {
namespace {

constexpr auto kTick = std::chrono::milliseconds(100);
constexpr LoadWatch::Clock::duration kSayAfter = std::chrono::seconds(5);

}  // namespace

LoadWatch::LoadWatch(std::string name, Clock::duration limit, std::function<void()> give_up)
    : name_(std::move(name)),
      limit_(limit),
      give_up_(std::move(give_up)),
      heard_(Clock::now()),
      moved_(heard_),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

LoadWatch::~LoadWatch() { End().IgnoreError(); }

void LoadWatch::Heard(const v1::LoadProgress& progress) {
  const MutexLock lock(mutex_);
  heard_ = Clock::now();
  if (progress.bytes_done() != last_.bytes_done() || progress.work() != last_.work() ||
      progress.doing() != last_.doing()) {
    moved_ = heard_;
  }
  last_ = progress;
}

absl::Status LoadWatch::End() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  return verdict_;
}

std::string LoadWatch::Describe(Clock::time_point now) const {
  const auto seconds = [now](Clock::time_point since) {
    return std::chrono::duration<double>(now - since).count();
  };
  const std::string at =
      fmt::format("{}, at {} of {}", last_.doing(), FormatBytes(last_.bytes_done()),
                  FormatBytes(last_.bytes_total()));
  if (now - heard_ > kSayAfter) {
    return fmt::format(
        "the worker has said nothing for {:.0f} s ({}): its process is stopped, or its host is "
        "unreachable",
        seconds(heard_), at);
  }
  return fmt::format(
      "the load has made no progress for {:.0f} s ({}): check that the file system responds",
      seconds(moved_), at);
}

void LoadWatch::Run(const std::stop_token& stop) {
  const Clock::duration say_after = std::min(kSayAfter, limit_ / 2);
  MutexLock lock(mutex_);
  bool said = false;
  for (Clock::time_point last_tick = Clock::now();;) {
    if (WaitForStop(lock, stop, kTick)) return;
    const Clock::time_point now = Clock::now();
    // If this process was itself stopped, that time does not count against the load.
    if (now - last_tick > 5 * kTick) moved_ += now - last_tick;
    last_tick = now;
    if (now - moved_ > limit_) {
      verdict_ = absl::DeadlineExceededError(Describe(now));
      lock.unlock();
      give_up_();
      return;
    }
    const bool stalls = now - moved_ > say_after;
    if (stalls && !said) spdlog::warn("{}: {}", name_, Describe(now));
    if (!stalls && said) spdlog::warn("{}: the load continues", name_);
    said = stalls;
  }
}

}  // namespace stagecoach::router
