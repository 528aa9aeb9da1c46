#include "router/dispatch/load_progress.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>

#include "common/log_writer.h"
#include "common/size.h"

namespace stagecoach::router {
namespace {

constexpr auto kBarInterval = std::chrono::milliseconds(100);
constexpr auto kLogInterval = std::chrono::seconds(3);
constexpr int kBarWidth = 30;

}  // namespace

std::string ProgressLine(uint64_t bytes_done, uint64_t bytes_total, size_t n_stages) {
  const double share =
      bytes_total == 0 ? 0.0 : std::min(1.0, double(bytes_done) / double(bytes_total));
  const int filled = static_cast<int>(share * kBarWidth);
  return fmt::format("loading [{:<{}}] {:3d}%  {} of {}  {} stage{}", std::string(filled, '#'),
                     kBarWidth, static_cast<int>(share * 100), FormatBytes(bytes_done),
                     FormatBytes(bytes_total), n_stages, n_stages == 1 ? "" : "s");
}

LoadProgressDisplay::LoadProgressDisplay(size_t n_stages, bool is_terminal)
    : n_stages_(n_stages),
      is_terminal_(is_terminal),
      stages_(n_stages),
      thread_([this] { Run(); }) {}

LoadProgressDisplay::~LoadProgressDisplay() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  const Progress last = Sum();
  if (is_terminal_ && shown_) {
    Show(last.done, last.total);
    WriteStderr("\n");
  }
}

void LoadProgressDisplay::Update(size_t stage, uint64_t bytes_done, uint64_t bytes_total) {
  MutexLock lock(mutex_);
  stages_[stage] = {bytes_done, bytes_total};
}

LoadProgressDisplay::Progress LoadProgressDisplay::Sum() {
  MutexLock lock(mutex_);
  Progress sum;
  for (const Progress& stage : stages_) {
    sum.done += stage.done;
    sum.total += stage.total;
  }
  return sum;
}

void LoadProgressDisplay::Run() {
  const auto interval = is_terminal_ ? std::chrono::milliseconds(kBarInterval)
                                     : std::chrono::milliseconds(kLogInterval);
  while (true) {
    {
      MutexLock lock(mutex_);
      if (changed_.wait_for(lock, interval,
                            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stopping_; }))
        return;
    }
    const Progress sum = Sum();
    if (sum.total > 0) Show(sum.done, sum.total);
  }
}

void LoadProgressDisplay::Show(uint64_t done, uint64_t total) {
  shown_ = true;
  const std::string line = ProgressLine(done, total, n_stages_);
  if (is_terminal_) {
    WriteStderr(fmt::format("\r{}\033[K", line));
  } else {
    spdlog::info("{}", line);
  }
}

}  // namespace stagecoach::router
