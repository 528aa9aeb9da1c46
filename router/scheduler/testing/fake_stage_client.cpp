#include "router/scheduler/testing/fake_stage_client.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace stagecoach::router {

FakeStageClient::FakeStageClient(const SchedulerConfig& config)
    : FakeStageClient(config, Options{}) {}

FakeStageClient::FakeStageClient(const SchedulerConfig& config, const Options& options)
    : config_(config),
      options_(options),
      stage_(config, &store_),
      epoch_(config.epoch),
      random_(options.delay_seed),
      hold_(options.hold_results) {}

FakeStageClient::~FakeStageClient() { Stop(); }

absl::Status FakeStageClient::Start(StageClientEvents events) {
  if (!options_.start_status.ok()) return options_.start_status;
  events_ = std::move(events);
  thread_ = std::thread([this] { Deliver(); });
  return absl::OkStatus();
}

void FakeStageClient::Send(std::unique_ptr<v1::StepPlan> plan) {
  MutexLock lock(mutex_);
  if (lost_ || stopping_ || plan->epoch() != epoch_) return;
  results_.push_back(std::make_unique<v1::StepResult>(stage_.Apply(*plan)));
  if (plan->step() == options_.wrong_step) results_.back()->set_step(plan->step() + 1);
  plans_.push_back(std::move(*plan));
  const uint64_t n_in_flight = plans_.size() - n_delivered_;
  max_in_flight_ = std::max(max_in_flight_, n_in_flight);
  // One per stage and one planned; with several stages, one more while prompts fill the steps.
  const int limit =
      config_.plan_ahead ? config_.n_microbatches + (config_.n_microbatches > 1 ? 2 : 1) : 1;
  if (n_in_flight > static_cast<uint64_t>(limit)) errors_.push_back("too many steps in flight");
  changed_.notify_all();
}

void FakeStageClient::Fetch(uint64_t epoch, std::unique_ptr<v1::KvFetch> fetch) {
  MutexLock lock(mutex_);
  if (lost_ || stopping_ || epoch != epoch_) return;
  fetched_.push_back(stage_.Fetch(*fetch));
  changed_.notify_all();
}

void FakeStageClient::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void FakeStageClient::Release(uint64_t n_results) {
  MutexLock lock(mutex_);
  n_released_ += n_results;
  changed_.notify_all();
  changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return n_delivered_ >= n_released_ || stopping_ || lost_;
  });
}

void FakeStageClient::ReleaseAll() {
  MutexLock lock(mutex_);
  hold_ = false;
  changed_.notify_all();
}

void FakeStageClient::Lose(absl::Status reason) {
  MutexLock lock(mutex_);
  if (lost_) return;
  lost_ = true;
  loss_ = std::move(reason);
  AwaitTold(lock);
}

void FakeStageClient::AwaitTold(MutexLock& lock) {
  telling_ = true;
  changed_.notify_all();
  changed_.wait(lock,
                [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !telling_ || stopping_; });
}

void FakeStageClient::Break(const absl::Status& reason) {
  MutexLock lock(mutex_);
  interruption_ = reason;
  restoring_ = false;
  AwaitTold(lock);
}

void FakeStageClient::Restore() {
  MutexLock lock(mutex_);
  restoring_ = true;
  changed_.notify_all();
}

void FakeStageClient::Interrupt(const absl::Status& reason) {
  MutexLock lock(mutex_);
  interruption_ = reason;
  restoring_ = true;
  changed_.notify_all();
}

std::vector<v1::StepPlan> FakeStageClient::plans() const {
  MutexLock lock(mutex_);
  return plans_;
}

std::vector<std::string> FakeStageClient::errors() const {
  MutexLock lock(mutex_);
  std::vector<std::string> errors = errors_;
  errors.insert(errors.end(), stage_.errors().begin(), stage_.errors().end());
  return errors;
}

uint64_t FakeStageClient::max_in_flight() const {
  MutexLock lock(mutex_);
  return max_in_flight_;
}

bool FakeStageClient::is_lost() const {
  MutexLock lock(mutex_);
  return lost_;
}

void FakeStageClient::Deliver() {
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      const bool released = !hold_ || n_delivered_ < n_released_;
      return stopping_ || lost_ || !interruption_.ok() || restoring_ || !fetched_.empty() ||
             (released && !results_.empty());
    });
    if (stopping_) return;
    if (lost_) {
      const absl::Status loss = loss_;
      lock.unlock();
      events_.on_down(loss);
      lock.lock();
      telling_ = false;
      changed_.notify_all();
      return;
    }
    if (!interruption_.ok()) {
      const absl::Status reason = std::exchange(interruption_, absl::OkStatus());
      n_delivered_ += results_.size();
      results_.clear();
      fetched_.clear();
      ++epoch_;
      lock.unlock();
      events_.on_interrupted(reason);
      lock.lock();
      telling_ = false;
      changed_.notify_all();
      continue;
    }
    if (std::exchange(restoring_, false)) {
      const uint64_t epoch = epoch_;
      kv_kept_ = !kv_kept_;
      stage_.BeginEpoch(epoch, kv_kept_);
      const bool kv_kept = kv_kept_;
      lock.unlock();
      events_.on_resumed(epoch, kv_kept);
      lock.lock();
      continue;
    }
    if (!fetched_.empty()) {
      const v1::KvFetched fetched = fetched_.front();
      fetched_.pop_front();
      lock.unlock();
      events_.on_fetched(fetched);
      lock.lock();
      continue;
    }
    std::unique_ptr<v1::StepResult> result = std::move(results_.front());
    results_.pop_front();
    ++n_delivered_;
    changed_.notify_all();
    const auto delay_us = options_.max_delay_us > 0 ? random_() % options_.max_delay_us : 0;
    lock.unlock();
    if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(delay_us));
    events_.on_result(std::move(result));
    lock.lock();
  }
}

}  // namespace stagecoach::router
