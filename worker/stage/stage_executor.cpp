#include "worker/stage/stage_executor.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

// A mask takes microseconds. More threads would take cores away from the layers.
int MaskThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
}

constexpr size_t kHiddenAhead = 2;  // frames received before compute needs them

}  // namespace

StageExecutor::StageExecutor(const Config& config, StageModel* model, kernels::Ops* ops,
                             Transport* transport)
    : config_(config),
      model_(model),
      ops_(ops),
      transport_(transport),
      device_(config.n_stages > 1 ? transport->device() : nullptr),
      checker_(config.limits, config.epoch, config.kv_blocks),
      slots_(config.limits,
             {.tokens = config.is_first() || config.is_last(), .sampling = config.is_last()}),
      batch_(config.limits),
      kv_copies_(model, ops, config.exchange.get()),
      sampled_in_(config.limits.config.max_sequences()),
      plans_(kMaxPlansAhead),
      steps_(kMaxPlansAhead),
      hidden_(kHiddenAhead),
      free_ends_(kStartedSteps),
      started_(kStartedSteps) {
  if (config_.is_last() && config_.limits.pools_hidden) {
    pooler_ = std::make_unique<Pooler>(config_.limits, model_, ops_);
  } else if (config_.is_last()) {
    masks_ = std::make_unique<GrammarMasks>(config_.grammars, config_.limits.config.max_sequences(),
                                            MaskThreads(), config_.work);
    sampler_ = std::make_unique<Sampler>(config_.limits, model_, ops_, masks_.get(), &clock_);
  }
}

absl::StatusOr<std::unique_ptr<StageExecutor>> StageExecutor::Start(const Config& config,
                                                                    StageModel* model,
                                                                    kernels::Ops* ops,
                                                                    Transport* transport) {
  std::unique_ptr<StageExecutor> executor(new StageExecutor(config, model, ops, transport));
  SC_RETURN_IF_ERROR(executor->AllocateEnds());
  executor->StartThreads();
  if (config.exchange != nullptr) {
    config.exchange->BeginEpoch([executor = executor.get()](v1::KvFetched fetched) {
      executor->Deliver(std::move(fetched));
    });
  }
  return executor;
}

absl::Status StageExecutor::AllocateEnds() {
  ends_.resize(ops_->runs_ahead() ? kStartedSteps : 1);
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (pooler_ != nullptr) {
      SC_ASSIGN_OR_RETURN(ends_[i].pool, PendingPool::Allocate(*model_, ops_));
    } else if (config_.is_last()) {
      SC_ASSIGN_OR_RETURN(ends_[i].samples,
                          PendingSamples::Allocate(config_.limits, *model_, ops_));
    } else if (device_ == nullptr) {
      SC_ASSIGN_OR_RETURN(
          ends_[i].hidden,
          ops_->AllocateHost(HiddenBytes(config_.limits.config.max_batched_tokens())));
    }
    SC_RETURN_IF_ERROR(free_ends_.Push(i));
  }
  return absl::OkStatus();
}

void StageExecutor::StartThreads() {
  const MutexLock lock(join_mutex_);
  // Thread names appear in `top -H` and debuggers.
  const auto start = [this](const char* name, absl::Status (StageExecutor::*loop)())
                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(join_mutex_) {
                           ++n_running_;
                           threads_.emplace_back([this, name, loop] {
                             pthread_setname_np(pthread_self(), name);
                             RunThread(loop);
                             --n_running_;
                           });
                         };
  start("metadata", &StageExecutor::MetadataLoop);
  const bool from_host = device_ == nullptr;
  if (from_host && !config_.is_first()) start("hidden", &StageExecutor::HiddenLoop);
  if (from_host && config_.is_first() && !config_.is_last()) {
    start("tokens", &StageExecutor::TokensLoop);
  }
  if (ops_->runs_ahead()) start("finish", &StageExecutor::FinishLoop);
  start("compute", &StageExecutor::ComputeLoop);
}

StageExecutor::~StageExecutor() { Stop(absl::CancelledError("the stage has ended")); }

void StageExecutor::RunThread(absl::Status (StageExecutor::*loop)()) {
  absl::Status reason = (this->*loop)();
  Close(absl::Status(reason.code(), absl::StrCat("stage ", config_.stage, " of ", config_.n_stages,
                                                 ": ", reason.message())));
}

absl::Status StageExecutor::Attach(StepListener* listener) {
  MutexLock listener_lock(listener_mutex_);
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return closed_;
  }
  if (listener_ != nullptr) {
    return absl::FailedPreconditionError("the stage has a Step stream already");
  }
  listener_ = listener;
  for (v1::StepResult& result : early_results_) listener_->OnResult(std::move(result));
  early_results_.clear();
  return absl::OkStatus();
}

void StageExecutor::Detach(StepListener* listener) {
  MutexLock lock(listener_mutex_);
  if (listener_ == listener) listener_ = nullptr;
}

absl::Status StageExecutor::Submit(v1::StepPlan plan) {
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return closed_;
    if (!config_.is_first()) {
      return absl::InvalidArgumentError(
          absl::StrCat("only stage 0 takes plans; this is stage ", config_.stage));
    }
    if (draining_) return absl::FailedPreconditionError("the stage is draining: no new plans");
    if (n_taken_ - n_computed_ >= kMaxPlansAhead) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxPlansAhead, " plans are waiting to be computed"));
    }
    TakeLocked();
  }
  return plans_.Push(std::move(plan));
}

void StageExecutor::TakeLocked() {
  if (n_taken_++ == n_computed_) counted_.idle.Settle(StageClock::Clock::now());
}

absl::Status StageExecutor::Drain() {
  MutexLock lock(mutex_);
  draining_ = true;
  changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !closed_.ok() || n_computed_ == n_taken_;
  });
  return closed_;
}

void StageExecutor::Close(absl::Status reason) {
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return;
    closed_ = reason;
    changed_.notify_all();
  }
  if (masks_ != nullptr) masks_->Close();
  plans_.Close(reason);
  steps_.Close(reason);
  hidden_.Close(reason);
  free_ends_.Close(reason);
  started_.Close(reason);
  tokens_.Close(reason);
  if (config_.n_stages > 1) transport_->Close(reason);
  MutexLock lock(listener_mutex_);
  if (listener_ != nullptr) listener_->OnClosed(reason);
}

void StageExecutor::Stop(absl::Status reason) {
  Close(std::move(reason));
  MutexLock lock(join_mutex_);
  if (threads_.empty()) return;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  if (config_.exchange != nullptr) config_.exchange->EndEpoch();
}

void StageExecutor::Fetch(v1::KvFetch fetch) {
  if (config_.exchange != nullptr) return config_.exchange->Fetch(std::move(fetch));
  v1::KvFetched none;
  none.set_id(fetch.id());
  Deliver(std::move(none));
}

void StageExecutor::Deliver(v1::StepResult result) {
  MutexLock lock(listener_mutex_);
  if (listener_ == nullptr) {
    early_results_.push_back(std::move(result));
  } else {
    listener_->OnResult(std::move(result));
  }
}

void StageExecutor::Deliver(v1::KvFetched fetched) {
  MutexLock lock(listener_mutex_);
  if (listener_ != nullptr) listener_->OnFetched(std::move(fetched));
}

v1::StepProgress StageExecutor::Progress() const {
  v1::StepProgress progress;
  progress.set_done(done_);
  progress.set_begun(begun_);
  progress.set_received(received_);
  progress.set_work(*config_.work);
  const auto activity = [&] {
    if (progress.begun() <= progress.done()) return v1::STEP_ACTIVITY_IDLE;
    switch (clock_.state()) {
      case StageState::kWaitMask:
        return v1::STEP_ACTIVITY_WAIT_MASK;
      case StageState::kWaitSend:
        return v1::STEP_ACTIVITY_WAIT_SEND;
      case StageState::kWaitInput:
        // If steps are queued ahead, the thread may be waiting for the next step's input.
        if (device_ == nullptr && progress.begun() == progress.done() + 1) {
          return v1::STEP_ACTIVITY_WAIT_INPUT;
        }
        [[fallthrough]];
      default:
        return device_ == nullptr ? v1::STEP_ACTIVITY_COMPUTE : v1::STEP_ACTIVITY_ON_DEVICE;
    }
  };
  progress.set_activity(activity());
  return progress;
}

v1::StatsResponse StageExecutor::Stats(bool reset) {
  const StageClock::Times times = clock_.Read(reset);
  std::array<ChannelCounters, kChannels> now{};
  if (config_.n_stages > 1) {
    for (int c = 0; c < kChannels; ++c) now[c] = transport_->Counters(static_cast<Channel>(c));
  }
  MutexLock lock(mutex_);
  v1::StatsResponse stats = counted_.stats;
  stats.set_elapsed_ms(times.elapsed_ms());
  stats.set_compute_ms(times.of(StageState::kCompute));
  stats.set_wait_input_ms(times.of(StageState::kWaitInput));
  stats.set_wait_mask_ms(times.of(StageState::kWaitMask));
  stats.set_wait_send_ms(times.of(StageState::kWaitSend));
  stats.set_idle_ms(times.of(StageState::kIdle));
  if (device_ != nullptr) {
    // The device's own times. Host work in parallel does not delay the steps.
    const StepTimes& device = counted_.on_device;
    stats.set_compute_ms(device.compute_ms);
    stats.set_wait_input_ms(device.wait_input_ms);
    stats.set_wait_mask_ms(0);
    stats.set_wait_send_ms(device.wait_send_ms);
    if (n_taken_ == n_computed_) counted_.idle.Settle(StageClock::Clock::now());
    stats.set_idle_ms(counted_.idle.ms());
  }
  // Hops from device to device are not timed.
  if (!config_.is_first() && device_ == nullptr) {
    counted_.hops.FillIn(stats.mutable_hop_seconds());
  }
  stats.set_slots_in_use(closed_.ok() ? slots_.n_in_use() : 0);
  v1::ChannelStats* const channels[kChannels] = {stats.mutable_metadata(), stats.mutable_hidden(),
                                                 stats.mutable_tokens_channel()};
  for (int c = 0; c < kChannels; ++c) {
    const ChannelCounters& before = counted_.channels_at_reset[c];
    channels[c]->set_sent_frames(now[c].sent_frames - before.sent_frames);
    channels[c]->set_sent_bytes(now[c].sent_bytes - before.sent_bytes);
    channels[c]->set_received_frames(now[c].received_frames - before.received_frames);
    channels[c]->set_received_bytes(now[c].received_bytes - before.received_bytes);
  }
  if (reset) {
    counted_ = {};
    counted_.channels_at_reset = now;
  }
  return stats;
}

}  // namespace stagecoach::worker
