#include "router/dispatch/pipeline_watch.h"

#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/check.h"

namespace stagecoach::router {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

PipelineWatch::PipelineWatch(std::vector<StallWatch::Stage> stages, const StallLimits& limits)
    : limits_(limits), stages_(std::move(stages)), counts_(stages_.size()) {}

PipelineWatch::~PipelineWatch() { End(); }

void PipelineWatch::Begin(PipelineWatchHooks hooks) {
  const MutexLock lock(mutex_);  // metrics may be read already
  SC_CHECK(watch_ == nullptr);
  hooks_ = std::move(hooks);
  watch_ = std::make_unique<StallWatch>(stages_, limits_, Clock::now());
  sizer_ = {};
  thread_ = std::jthread([this](const std::stop_token& ending) { Run(ending); });
}

void PipelineWatch::End() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
  const MutexLock lock(mutex_);
  watch_ = nullptr;
}

void PipelineWatch::Sent(const v1::StepPlan& plan) {
  const MutexLock lock(mutex_);
  if (watch_ != nullptr) watch_->Sent(plan.step(), sizer_(plan), Clock::now());
}

void PipelineWatch::Heard(size_t stage, const v1::StepProgress& progress) {
  const MutexLock lock(mutex_);
  if (watch_ != nullptr) watch_->Heard(stage, progress, Clock::now());
}

void PipelineWatch::Result(uint64_t step) {
  const MutexLock lock(mutex_);
  if (watch_ != nullptr) watch_->Result(step, Clock::now());
}

PipelineWatch::Report PipelineWatch::Read() const {
  const MutexLock lock(mutex_);
  if (watch_ == nullptr) return {std::vector<std::string>(counts_.size()), counts_};
  return {watch_->Stalled(), counts_};
}

void PipelineWatch::Run(const std::stop_token& ending) {
  pthread_setname_np(pthread_self(), "watch");
  bool is_stalled = false;
  MutexLock lock(mutex_);
  while (!WaitForStop(lock, ending, StallWatch::kTick)) {
    const std::vector<StallWatch::Change> changes = watch_->Tick(Clock::now());
    for (const StallWatch::Change& change : changes) {
      if (change.kind == StallKind::kSilent) ++counts_[change.stage].silent;
      if (change.kind == StallKind::kStep) ++counts_[change.stage].step;
    }
    const std::vector<std::string> stalled = watch_->Stalled();
    is_stalled = std::any_of(stalled.begin(), stalled.end(),
                             [](const std::string& text) { return !text.empty(); });
    const absl::Status lost = watch_->Verdict(Clock::now());
    lock.unlock();
    for (const StallWatch::Change& change : changes) spdlog::warn("{}", change.text);
    if (!changes.empty() && hooks_.on_change) hooks_.on_change(stalled);
    if (!lost.ok()) {
      if (hooks_.on_lost) hooks_.on_lost(lost);
      break;
    }
    lock.lock();
  }
  // The next epoch begins without a stall.
  if (is_stalled && hooks_.on_change) hooks_.on_change(std::vector<std::string>(stages_.size()));
}

}  // namespace stagecoach::router
