// The loops of the executor's threads: a step from metadata to results.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/mutex.h"
#include "common/status.h"
#include "common/unix_time.h"
#include "worker/model/passed_rows.h"
#include "worker/stage/stage_executor.h"

namespace stagecoach::worker {
namespace {

// If the device waits longer than a hop takes, it had no work.
constexpr double kBubbleMs = 0.1;

// An error for a channel with a message of another step than the metadata channel's.
absl::Status OutOfStep(std::string_view what, uint64_t got, uint64_t wanted) {
  return absl::InternalError(absl::StrCat(absl::string_view(what.data(), what.size()), " of step ",
                                          got, " came for step ", wanted));
}

}  // namespace

StageExecutor::Time StageExecutor::Record(uint64_t step, FlightTime what) {
  const Time now = StageClock::Clock::now();
  if (config_.observers.flight != nullptr) config_.observers.flight->Mark(step, what, now);
  return now;
}

void StageExecutor::Trace(const StartedStep& step, Time computed) {
  const Time sent = StageClock::Clock::now();
  const auto ms = [](Time from, Time to) {
    return std::chrono::duration<double, std::milli>(to - from).count();
  };
  const UnixClock clock;
  for (const TraceRecord& trace : step.traces) {
    TraceSpan span;
    std::copy_n(trace.trace_id, span.trace_id.size(), span.trace_id.begin());
    std::copy_n(trace.span_id, span.span_id.size(), span.parent.emplace().begin());
    span.span_id = NewSpanId();
    span.name = absl::StrCat("stage ", config_.stage);
    span.begin_unix_ns = clock.At(step.began);
    span.end_unix_ns = clock.At(sent);
    span.attributes = {{"stagecoach.step", static_cast<int64_t>(step.step)},
                       {"stagecoach.rows", static_cast<int64_t>(step.n_rows)},
                       {"stagecoach.wait_input_ms", ms(step.began, step.input)},
                       {"stagecoach.compute_ms", ms(step.input, computed)},
                       {"stagecoach.send_ms", ms(computed, sent)}};
    config_.observers.spans->Add(std::move(span));
  }
}

absl::Status StageExecutor::NextMetadata(std::string* bytes) {
  if (config_.is_first()) {
    SC_ASSIGN_OR_RETURN(const v1::StepPlan plan, plans_.Pop());
    received_ = plan.step();
    return EncodeStepMeta(plan, static_cast<uint32_t>(config_.limits.n_kv_groups), bytes);
  }
  SC_ASSIGN_OR_RETURN(Message message, transport_->Receive(Channel::kMetadata));
  *bytes = std::move(message.payload);
  received_ = message.step;
  MutexLock lock(mutex_);
  TakeLocked();
  return absl::OkStatus();
}

absl::Status StageExecutor::MetadataLoop() {
  for (;;) {
    KnownStep step;
    SC_RETURN_IF_ERROR(NextMetadata(&step.bytes));
    SC_ASSIGN_OR_RETURN(step.view, DecodeStepMeta(step.bytes));
    if (config_.is_first() || config_.is_last()) {
      SC_ASSIGN_OR_RETURN(step.sampling, ParseSampling(step.view));
    }
    SC_RETURN_IF_ERROR(checker_.Check(step.view, step.sampling));
    if (!config_.is_last()) {
      SC_RETURN_IF_ERROR(transport_->Send(Channel::kMetadata, step.view.step, step.bytes));
    } else if (masks_ != nullptr) {
      step.grammars = masks_->Begin(step.view, step.sampling);
    }
    if (device_ != nullptr) {
      SC_RETURN_IF_ERROR(device_->Expect(step.view.step,
                                         config_.is_first() ? 0 : HiddenBytes(step.view.n_rows),
                                         config_.is_first() && step.view.samples_any()));
    }
    step.ready_at = StageClock::Clock::now();
    if (config_.observers.flight != nullptr) {
      const uint32_t n_decode = step.view.n_decode();
      config_.observers.flight->Begin(step.view.epoch, step.view.step, step.view.n_rows - n_decode,
                                      n_decode, step.ready_at);
    }
    SC_RETURN_IF_ERROR(steps_.Push(std::move(step)));
  }
}

absl::Status StageExecutor::HiddenLoop() {
  for (;;) {
    SC_ASSIGN_OR_RETURN(Message message, transport_->Receive(Channel::kHidden));
    if (message.sent_unix_ns != 0) {
      const auto hop_ns = static_cast<int64_t>(UnixNanoseconds() - message.sent_unix_ns);
      MutexLock lock(mutex_);
      counted_.hops.Observe(static_cast<double>(std::max<int64_t>(hop_ns, 0)) / 1e9);
    }
    SC_RETURN_IF_ERROR(hidden_.Push({std::move(message), StageClock::Clock::now()}));
  }
}

absl::Status StageExecutor::TokensLoop() {
  std::vector<TokenRecord> arrived;
  for (;;) {
    SC_ASSIGN_OR_RETURN(const Message message, transport_->Receive(Channel::kTokens));
    if (message.payload.size() % sizeof(TokenRecord) != 0) {
      return absl::InternalError(absl::StrCat("a tokens frame of ", message.payload.size(),
                                              " bytes in step ", message.step));
    }
    arrived.resize(message.payload.size() / sizeof(TokenRecord));
    std::memcpy(arrived.data(), message.payload.data(), message.payload.size());
    QueueTokens(message.step, arrived);
  }
}

absl::Status StageExecutor::ComputeLoop() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      if (n_taken_ == n_computed_) clock_.Enter(StageState::kIdle);
    }
    SC_ASSIGN_OR_RETURN(KnownStep step, steps_.Pop());
    clock_.Enter(StageState::kCompute);
    began_ = Record(step.view.step, FlightTime::kBegan);
    begun_ = step.view.step;
    if (absl::Status status = RunStep(step); !status.ok()) {
      clock_.Enter(StageState::kIdle);
      return status;
    }
  }
}

absl::Status StageExecutor::FinishLoop() {
  for (;;) {
    SC_ASSIGN_OR_RETURN(StartedStep step, started_.Pop());
    SC_RETURN_IF_ERROR(Finish(std::move(step)));
  }
}

absl::Status StageExecutor::RunStep(KnownStep& step) {
  if (device_ != nullptr) return RunStepOnDevice(step);
  const StepMetaView& meta = step.view;
  slots_.Apply(meta, step.sampling);
  if (masks_ != nullptr) masks_->Apply(meta, step.grammars);
  batch_.Build(meta, slots_);
  SC_RETURN_IF_ERROR(kv_copies_.Begin(meta, &kv_after_));
  SC_RETURN_IF_ERROR(config_.is_first() ? TakeTokens(step) : TakeHidden(step));
  input_ = Record(meta.step, FlightTime::kInput);
  Forward(meta);
  return StartEnd(step);
}

void StageExecutor::Forward(const StepMetaView& meta) {
  LogitRows logit_rows;
  if (sampler_ != nullptr) logit_rows = sampler_->ChooseRows(meta, batch_, slots_);
  if (pooler_ != nullptr) logit_rows = pooler_->ChooseRows(meta, batch_, slots_);
  // A step that only releases slots has no rows.
  if (meta.n_rows == 0) return;
  model_->Forward(batch_.batch(), model_->hidden_buffer(), logit_rows);
}

void StageExecutor::QueueTokens(uint64_t step, std::span<const TokenRecord> tokens) {
  // Once the queue is closed, nobody needs the tokens. The step's result is still delivered.
  tokens_.PushAll(tokens.size(), [&](size_t i) { return ArrivedToken{step, tokens[i]}; })
      .IgnoreError();
}

absl::Status StageExecutor::AcceptTokens() {
  tokens_.TakeAll(&taken_tokens_);
  for (const ArrivedToken& token : taken_tokens_) {
    SC_ASSIGN_OR_RETURN(const bool is_current,
                        slots_.AcceptToken(token.step, token.record.slot, token.record.token));
    // Otherwise the token belongs to the slot's previous sequence.
    if (masks_ != nullptr && is_current) masks_->Accept(token.record.slot, token.record.token);
  }
  return absl::OkStatus();
}

void StageExecutor::CountBubble() {
  MutexLock lock(mutex_);
  counted_.stats.set_bubbles(counted_.stats.bubbles() + 1);
}

absl::Status StageExecutor::TakeTokens(const KnownStep& step) {
  for (bool waited = false;; waited = true) {
    SC_RETURN_IF_ERROR(AcceptTokens());
    if (batch_.FillTokens(step.view, slots_, config_.is_last()) == 0) {
      if (waited) CountBubble();
      return absl::OkStatus();
    }
    clock_.Enter(StageState::kWaitInput);
    SC_RETURN_IF_ERROR(tokens_.Wait());
    clock_.Enter(StageState::kCompute);
  }
}

absl::Status StageExecutor::AwaitSampledTokens(const StepMetaView& meta) {
  for (;;) {
    SC_RETURN_IF_ERROR(AcceptTokens());
    bool complete = true;
    for (size_t i = 0; i < meta.n_slots() && complete; ++i) {
      complete = !Sampler::NeedsTokens(meta, i, slots_) ||
                 slots_.tokens(meta.slots[i]).size() >= size_t{meta.starts[i]} + meta.n_tokens[i];
    }
    if (complete) return absl::OkStatus();
    SC_RETURN_IF_ERROR(tokens_.Wait());
  }
}

absl::Status StageExecutor::TakeHidden(const KnownStep& step) {
  clock_.Enter(StageState::kWaitInput);
  const Time wanted_at = StageClock::Clock::now();
  SC_ASSIGN_OR_RETURN(const ArrivedHidden hidden, hidden_.Pop());
  clock_.Enter(StageState::kCompute);
  if (hidden.arrived_at > wanted_at) CountBubble();
  const Message& message = hidden.message;
  if (message.step != step.view.step) {
    return OutOfStep("hidden states", message.step, step.view.step);
  }
  if (message.payload.size() != HiddenBytes(step.view.n_rows)) {
    return absl::InternalError(absl::StrCat("step ", message.step, " has ", step.view.n_rows,
                                            " rows, but ", message.payload.size(),
                                            " bytes of hidden states"));
  }
  if (hidden.arrived_at < step.ready_at) {
    MutexLock lock(mutex_);
    counted_.stats.set_metadata_late_steps(counted_.stats.metadata_late_steps() + 1);
  }
  ops_->Upload(message.payload.data(), model_->passed_buffer(), message.payload.size());
  return absl::OkStatus();
}

StageExecutor::StartedStep StageExecutor::NewStarted(const StepMetaView& meta) {
  StartedStep started{.step = meta.step, .n_rows = meta.n_rows};
  started.kv = std::exchange(kv_after_, {});
  started.began = began_;
  started.input = input_;
  if (config_.observers.spans != nullptr) {
    started.traces.assign(meta.traces.begin(), meta.traces.end());
  }
  return started;
}

absl::Status StageExecutor::StartEnd(const KnownStep& step) {
  const StepMetaView& meta = step.view;
  StartedStep started = NewStarted(meta);
  SC_ASSIGN_OR_RETURN(started.end, free_ends_.Pop());
  StepEnd& end = ends_[started.end];
  if (config_.is_last()) {
    SC_RETURN_IF_ERROR(StartResult(meta, end));
  } else {
    ops_->DownloadLater(model_->passed_buffer(), end.hidden.data.get(), HiddenBytes(meta.n_rows));
  }
  started.mark = ops_->Mark();
  return ops_->runs_ahead() ? started_.Push(std::move(started)) : Finish(std::move(started));
}

absl::Status StageExecutor::StartResult(const StepMetaView& meta, StepEnd& end) {
  SC_RETURN_IF_ERROR(AwaitSampledTokens(meta));
  if (pooler_ != nullptr) {
    pooler_->Start(meta, model_->hidden_buffer(), end.pool.get());
    return absl::OkStatus();
  }
  return sampler_->Start(meta, slots_, model_->hidden_buffer(), end.samples.get());
}

absl::Status StageExecutor::Finish(StartedStep step) {
  SC_RETURN_IF_ERROR(ops_->Wait(step.mark));
  const Time computed = Record(step.step, FlightTime::kComputed);
  StepTimes times;
  if (device_ != nullptr) {
    SC_ASSIGN_OR_RETURN(times, device_->Finish(step.step));
    MutexLock lock(mutex_);
    counted_.on_device.wait_input_ms += times.wait_input_ms;
    counted_.on_device.compute_ms += times.compute_ms;
    counted_.on_device.wait_send_ms += times.wait_send_ms;
    counted_.idle.Settle(StageClock::Clock::now(),
                         times.wait_input_ms + times.compute_ms + times.wait_send_ms);
    if (times.wait_input_ms > kBubbleMs) counted_.stats.set_bubbles(counted_.stats.bubbles() + 1);
  }
  TellSpeed(step, computed, device_ != nullptr ? &times : nullptr);
  // Before the step goes on, so that its result means that the stages before have queued its saves.
  kv_copies_.Finish(std::move(step.kv));
  if (config_.is_last()) {
    SC_RETURN_IF_ERROR(FinishResult(step));
  } else if (device_ == nullptr) {
    std::string payload(ends_[step.end].hidden.As<char>(), HiddenBytes(step.n_rows));
    clock_.Enter(StageState::kWaitSend);
    SC_RETURN_IF_ERROR(transport_->Send(Channel::kHidden, step.step, std::move(payload)));
    clock_.Enter(StageState::kCompute);
  }
  Record(step.step, FlightTime::kSent);
  if (!step.traces.empty()) Trace(step, computed);
  SC_RETURN_IF_ERROR(free_ends_.Push(step.end));
  Count(step);
  return absl::OkStatus();
}

void StageExecutor::TellSpeed(const StartedStep& step, Time computed, const StepTimes* on_device) {
  // A step that is queued behind another one begins when that one ends.
  const std::chrono::duration<double> took = computed - std::max(step.input, computed_);
  computed_ = computed;
  if (config_.exchange == nullptr) return;
  config_.exchange->Computed(step.n_rows,
                             on_device != nullptr ? on_device->compute_ms / 1e3 : took.count());
}

void StageExecutor::Count(const StartedStep& step) {
  MutexLock lock(mutex_);
  done_ = step.step;
  counted_.stats.set_steps(counted_.stats.steps() + 1);
  counted_.stats.set_tokens(counted_.stats.tokens() + step.n_rows);
  ++n_computed_;
  if (n_taken_ == n_computed_) clock_.Enter(StageState::kIdle);
  changed_.notify_all();
}

absl::Status StageExecutor::FinishResult(const StartedStep& step) {
  std::span<const TokenRecord> tokens;
  const StepEnd& end = ends_[step.end];
  v1::StepResult result = pooler_ != nullptr ? pooler_->Finish(end.pool.get(), &tokens)
                                             : Sampler::Finish(end.samples.get(), &tokens);
  QueueTokens(step.step, tokens);
  // If this is the compute thread, accept the tokens at once, so that the next masks start now.
  if (!ops_->runs_ahead()) SC_RETURN_IF_ERROR(AcceptTokens());
  if (device_ == nullptr && !config_.is_first() && !tokens.empty()) {
    clock_.Enter(StageState::kWaitSend);
    SC_RETURN_IF_ERROR(transport_->Send(
        Channel::kTokens, step.step,
        std::string(reinterpret_cast<const char*>(tokens.data()), tokens.size_bytes())));
    clock_.Enter(StageState::kCompute);
  }
  Deliver(std::move(result));
  return absl::OkStatus();
}

size_t StageExecutor::HiddenBytes(size_t n_rows) const {
  return PassedBytes(model_->spec(), config_.limits.config, n_rows);
}

}  // namespace stagecoach::worker
