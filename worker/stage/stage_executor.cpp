#include "worker/stage/stage_executor.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "common/unix_time.h"

namespace stagecoach::worker {
namespace {

// Masks are a matter of microseconds; more threads would take cores from the layers.
int MaskThreads() {
  return std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
}

// A device that waits for longer than a hop takes had nothing to do.
constexpr double kBubbleMs = 0.1;
constexpr size_t kHiddenAhead = 2;  // frames taken from the transport before compute wants them

// A step's last word on a channel that does not agree with the metadata channel.
absl::Status OutOfStep(std::string_view what, uint64_t got, uint64_t wanted) {
  return absl::InternalError(absl::StrCat(absl::string_view(what.data(), what.size()), " of step ",
                                          got, " came for step ", wanted));
}

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
      sampled_in_(config.limits.max_sequences),
      plans_(kMaxPlansAhead),
      steps_(kMaxPlansAhead),
      hidden_(kHiddenAhead),
      free_ends_(kStartedSteps),
      started_(kStartedSteps) {
  if (config_.is_last()) {
    masks_ = std::make_unique<GrammarMasks>(config_.grammars, config_.limits.max_sequences,
                                            MaskThreads());
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
  return executor;
}

absl::Status StageExecutor::AllocateEnds() {
  ends_.resize(ops_->runs_ahead() ? kStartedSteps : 1);
  for (size_t i = 0; i < ends_.size(); ++i) {
    if (config_.is_last()) {
      SC_ASSIGN_OR_RETURN(ends_[i].samples,
                          PendingSamples::Allocate(config_.limits, *model_, ops_));
    } else if (device_ == nullptr) {
      SC_ASSIGN_OR_RETURN(ends_[i].hidden,
                          ops_->AllocateHost(HiddenBytes(config_.limits.max_batched_tokens)));
    }
    SC_RETURN_IF_ERROR(free_ends_.Push(i));
  }
  return absl::OkStatus();
}

void StageExecutor::StartThreads() {
  const auto start = [this](absl::Status (StageExecutor::*loop)()) {
    threads_.emplace_back([this, loop] { RunThread(loop); });
  };
  start(&StageExecutor::MetadataLoop);
  const bool from_host = device_ == nullptr;
  if (from_host && !config_.is_first()) start(&StageExecutor::HiddenLoop);
  if (from_host && config_.is_first() && !config_.is_last()) start(&StageExecutor::TokensLoop);
  if (ops_->runs_ahead()) start(&StageExecutor::FinishLoop);
  start(&StageExecutor::ComputeLoop);
}

StageExecutor::~StageExecutor() { Stop(absl::CancelledError("the stage has ended")); }

void StageExecutor::RunThread(absl::Status (StageExecutor::*loop)()) {
  absl::Status reason = (this->*loop)();
  Close(absl::Status(reason.code(), absl::StrCat("stage ", config_.stage, " of ", config_.n_stages,
                                                 ": ", reason.message())));
}

absl::Status StageExecutor::Attach(StepListener* listener) {
  std::lock_guard listener_lock(listener_mutex_);
  {
    std::lock_guard lock(mutex_);
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
  std::lock_guard lock(listener_mutex_);
  if (listener_ == listener) listener_ = nullptr;
}

absl::Status StageExecutor::Submit(v1::StepPlan plan) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_.ok()) return closed_;
    if (!config_.is_first()) {
      return absl::InvalidArgumentError(
          absl::StrCat("plans go to stage 0; this is stage ", config_.stage));
    }
    if (draining_) return absl::FailedPreconditionError("the stage is draining: no new plans");
    if (n_taken_ - n_computed_ >= kMaxPlansAhead) {
      return absl::ResourceExhaustedError(
          absl::StrCat("more than ", kMaxPlansAhead, " plans are not computed yet"));
    }
    ++n_taken_;
  }
  return plans_.Push(std::move(plan));
}

absl::Status StageExecutor::Drain() {
  std::unique_lock lock(mutex_);
  draining_ = true;
  changed_.wait(lock, [&] { return !closed_.ok() || n_computed_ == n_taken_; });
  return closed_;
}

void StageExecutor::Close(absl::Status reason) {
  {
    std::lock_guard lock(mutex_);
    if (!closed_.ok()) return;
    closed_ = reason;
    changed_.notify_all();
  }
  plans_.Close(reason);
  steps_.Close(reason);
  hidden_.Close(reason);
  free_ends_.Close(reason);
  started_.Close(reason);
  tokens_.Close(reason);
  if (config_.n_stages > 1) transport_->Close(reason);
  std::lock_guard lock(listener_mutex_);
  if (listener_ != nullptr) listener_->OnClosed(reason);
}

void StageExecutor::Stop(absl::Status reason) {
  Close(std::move(reason));
  std::lock_guard lock(join_mutex_);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

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
    return EncodeStepMeta(plan, static_cast<uint32_t>(config_.limits.n_kv_groups), bytes);
  }
  SC_ASSIGN_OR_RETURN(Message message, transport_->Receive(Channel::kMetadata));
  *bytes = std::move(message.payload);
  std::lock_guard lock(mutex_);
  ++n_taken_;
  return absl::OkStatus();
}

absl::Status StageExecutor::MetadataLoop() {
  for (;;) {
    KnownStep step;
    SC_RETURN_IF_ERROR(NextMetadata(&step.bytes));
    SC_ASSIGN_OR_RETURN(step.view, DecodeStepMeta(step.bytes));
    SC_RETURN_IF_ERROR(checker_.Check(step.view));
    if (!config_.is_last()) {
      SC_RETURN_IF_ERROR(transport_->Send(Channel::kMetadata, step.view.step, step.bytes));
    } else {
      step.grammars = masks_->Begin(step.view);
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
      std::lock_guard lock(mutex_);
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
    tokens_.Put(message.step, arrived);
  }
}

absl::Status StageExecutor::ComputeLoop() {
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (n_taken_ == n_computed_) clock_.Enter(StageState::kIdle);
    }
    SC_ASSIGN_OR_RETURN(const KnownStep step, steps_.Pop());
    clock_.Enter(StageState::kCompute);
    began_ = Record(step.view.step, FlightTime::kBegan);
    if (absl::Status status = RunStep(step); !status.ok()) {
      clock_.Enter(StageState::kIdle);
      return status;
    }
  }
}

absl::Status StageExecutor::FinishLoop() {
  for (;;) {
    SC_ASSIGN_OR_RETURN(const StartedStep step, started_.Pop());
    SC_RETURN_IF_ERROR(Finish(step));
  }
}

absl::Status StageExecutor::RunStep(const KnownStep& step) {
  if (device_ != nullptr) return RunStepOnDevice(step);
  const StepMetaView& meta = step.view;
  slots_.Apply(meta);
  if (masks_ != nullptr) masks_->Apply(meta, step.grammars);
  batch_.Build(meta, slots_);
  SC_RETURN_IF_ERROR(config_.is_first() ? TakeTokens(step) : TakeHidden(step));
  input_ = Record(meta.step, FlightTime::kInput);
  Forward(meta);
  return StartEnd(step);
}

void StageExecutor::Forward(const StepMetaView& meta) {
  LogitRows logit_rows;
  if (config_.is_last()) logit_rows = sampler_->ChooseRows(meta, batch_, slots_);
  model_->Forward(batch_.batch(), model_->hidden_buffer(), logit_rows);
}

absl::Status StageExecutor::AcceptTokens() {
  tokens_.Take(&taken_tokens_);
  for (const ArrivedToken& token : taken_tokens_) {
    SC_ASSIGN_OR_RETURN(const bool is_current,
                        slots_.AcceptToken(token.step, token.record.slot, token.record.token));
    // Else it is of the sequence that had the slot before.
    if (masks_ != nullptr && is_current) masks_->Accept(token.record.slot, token.record.token);
  }
  return absl::OkStatus();
}

void StageExecutor::CountBubble() {
  std::lock_guard lock(mutex_);
  ++counted_.bubbles;
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
    std::lock_guard lock(mutex_);
    ++counted_.metadata_late_steps;
  }
  ops_->Upload(message.payload.data(), model_->hidden_buffer(), message.payload.size());
  return absl::OkStatus();
}

StageExecutor::StartedStep StageExecutor::NewStarted(const StepMetaView& meta) const {
  StartedStep started{.step = meta.step, .n_rows = meta.n_rows};
  if (config_.observers.spans != nullptr && !meta.traces.empty()) {
    started.traces.assign(meta.traces.begin(), meta.traces.end());
    started.began = began_;
    started.input = input_;
  }
  return started;
}

absl::Status StageExecutor::StartEnd(const KnownStep& step) {
  const StepMetaView& meta = step.view;
  StartedStep started = NewStarted(meta);
  SC_ASSIGN_OR_RETURN(started.end, free_ends_.Pop());
  StepEnd& end = ends_[started.end];
  if (config_.is_last()) {
    SC_RETURN_IF_ERROR(AwaitSampledTokens(meta));
    SC_RETURN_IF_ERROR(sampler_->Start(meta, slots_, model_->hidden_buffer(), end.samples.get()));
  } else {
    ops_->DownloadLater(model_->hidden_buffer(), end.hidden.data.get(), HiddenBytes(meta.n_rows));
  }
  started.mark = ops_->Mark();
  return ops_->runs_ahead() ? started_.Push(started) : Finish(started);
}

absl::Status StageExecutor::Finish(const StartedStep& step) {
  SC_RETURN_IF_ERROR(ops_->Wait(step.mark));
  const Time computed = Record(step.step, FlightTime::kComputed);
  if (device_ != nullptr) {
    SC_ASSIGN_OR_RETURN(const StepTimes times, device_->Finish(step.step));
    std::lock_guard lock(mutex_);
    counted_.on_device.wait_input_ms += times.wait_input_ms;
    counted_.on_device.compute_ms += times.compute_ms;
    counted_.on_device.wait_send_ms += times.wait_send_ms;
    if (times.wait_input_ms > kBubbleMs) ++counted_.bubbles;
  }
  if (config_.is_last()) {
    SC_RETURN_IF_ERROR(FinishSamples(step));
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

void StageExecutor::Count(const StartedStep& step) {
  std::lock_guard lock(mutex_);
  ++counted_.steps;
  counted_.tokens += step.n_rows;
  ++n_computed_;
  if (n_taken_ == n_computed_) clock_.Enter(StageState::kIdle);
  changed_.notify_all();
}

absl::Status StageExecutor::FinishSamples(const StartedStep& step) {
  std::span<const TokenRecord> tokens;
  v1::StepResult result = Sampler::Finish(ends_[step.end].samples.get(), &tokens);
  tokens_.Put(step.step, tokens);
  // At once where this is the compute thread: the next masks are begun with them.
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

void StageExecutor::Deliver(v1::StepResult result) {
  std::lock_guard lock(listener_mutex_);
  if (listener_ == nullptr) {
    early_results_.push_back(std::move(result));
  } else {
    listener_->OnResult(std::move(result));
  }
}

size_t StageExecutor::HiddenBytes(size_t n_rows) const {
  return n_rows * static_cast<size_t>(model_->spec().hidden_size) * sizeof(float);
}

v1::StatsResponse StageExecutor::Stats(bool reset) {
  const StageClock::Times times = clock_.Read(reset);
  std::array<ChannelCounters, kChannels> now{};
  if (config_.n_stages > 1) {
    for (int c = 0; c < kChannels; ++c) now[c] = transport_->Counters(static_cast<Channel>(c));
  }
  v1::StatsResponse stats;
  stats.set_elapsed_ms(times.elapsed_ms());
  stats.set_compute_ms(times.of(StageState::kCompute));
  stats.set_wait_input_ms(times.of(StageState::kWaitInput));
  stats.set_wait_mask_ms(times.of(StageState::kWaitMask));
  stats.set_wait_send_ms(times.of(StageState::kWaitSend));
  stats.set_idle_ms(times.of(StageState::kIdle));

  std::lock_guard lock(mutex_);
  if (device_ != nullptr) {
    // The device's own time; what the host does beside it costs nothing.
    const StepTimes& device = counted_.on_device;
    stats.set_compute_ms(device.compute_ms);
    stats.set_wait_input_ms(device.wait_input_ms);
    stats.set_wait_mask_ms(0);
    stats.set_wait_send_ms(device.wait_send_ms);
    stats.set_idle_ms(std::max(
        0.0, times.elapsed_ms() - device.compute_ms - device.wait_input_ms - device.wait_send_ms));
  }
  stats.set_steps(counted_.steps);
  stats.set_tokens(counted_.tokens);
  stats.set_metadata_late_steps(counted_.metadata_late_steps);
  stats.set_bubbles(counted_.bubbles);
  if (!config_.is_first()) counted_.hops.FillIn(stats.mutable_hop_seconds());
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
