#include "router/frontend/generation.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/rpc/finish_reason.h"
#include "router/frontend/request_log.h"
#include "router/frontend/router_metrics.h"
#include "router/journal/journal.h"
#include "router/scheduler/scheduler.h"
#include "router/text/logprobs.h"

namespace stagecoach::router {
namespace {

using Seconds = std::chrono::duration<double>;
using Milliseconds = std::chrono::duration<double, std::milli>;

// Memory of a token's message and of one log-probability in it, about.
constexpr size_t kTokenBytes = 32, kLogprobBytes = 128;

size_t LogprobsBytes(const v1::Logprobs& logprobs) {
  return kLogprobBytes * (1 + static_cast<size_t>(logprobs.top_size()));
}

}  // namespace

class Generation::Sink final : public SequenceSink {
 public:
  Sink(std::shared_ptr<Generation> generation, uint32_t index)
      : generation_(std::move(generation)), index_(index) {}

  void OnQueued() override {
    // Either all choices are queued or none, so the first one is enough.
    if (index_ != 0) return;
    v1::SequenceEvent event;
    event.set_queued(true);
    Hand(std::move(event));
  }

  void OnTracedStep(const TracedStep& step) override { generation_->trace_->AddStep(step); }

  void OnOutput(const SequenceOutput& output, const SequenceTimes& times) override {
    v1::SequenceEvent event;
    if (!output.tokens.empty()) event.set_token(output.tokens.front());
    if (output.logprobs != nullptr) *event.mutable_logprobs() = *output.logprobs;
    for (const v1::Logprobs* one : output.prompt_logprobs) *event.add_prompt_logprobs() = *one;
    event.mutable_values()->Add(output.values.begin(), output.values.end());
    event.set_finish(static_cast<uint32_t>(output.finish));
    event.set_preemptions(times.preemptions);
    if (!has_token_) {  // these do not change later
      event.set_queue_ms(times.queue_ms);
      event.set_cached_tokens(times.n_cached_tokens);
      *event.mutable_stored_tokens() = times.stored;
    }
    has_token_ = has_token_ || event.has_token();
    Hand(std::move(event));
  }

  void OnError(const absl::Status& status) override {
    v1::SequenceEvent event;
    event.set_error_code(static_cast<int32_t>(status.code()));
    event.set_error(std::string(status.message()));
    Hand(std::move(event));
  }

 private:
  void Hand(v1::SequenceEvent event) {
    event.set_choice(index_);
    event.set_time_us(std::chrono::duration_cast<std::chrono::microseconds>(
                          Clock::now() - generation_->arrival_.time)
                          .count());
    generation_->Hand(std::move(event));
  }

  const std::shared_ptr<Generation> generation_;
  const uint32_t index_;
  bool has_token_ = false;  // a token was handed over
};

Generation::Generation(const Services& services, std::string request_id, SequenceId first_id,
                       ResponseWriter* writer, Arrival arrival, std::optional<RequestTrace> trace,
                       std::shared_ptr<ClientCall> call)
    : services_(services),
      request_id_(std::move(request_id)),
      first_id_(first_id),
      writer_(writer),
      arrival_(std::move(arrival)),
      trace_(std::move(trace)),
      call_(std::move(call)),
      backlog_(services.memory) {}

void Generation::WriteTo(Journal* journal, uint64_t stream, uint32_t prompt) {
  journal_ = journal;
  journal_stream_ = stream;
  prompt_index_ = prompt;
}

void Generation::Start(absl::StatusOr<GenerationInput> input) {
  services_.lane->Post([self = shared_from_this(), input = std::move(input)]() mutable {
    self->Submit(self->Prepare(std::move(input)));
  });
}

void Generation::Continue(Generations generations,
                          std::vector<absl::StatusOr<GenerationInput>> inputs,
                          std::vector<v1::SequenceEvent> events, WorkQueue::Task done) {
  WorkQueue* const lane = generations.front()->lane();
  lane->Post([generations = std::move(generations), inputs = std::move(inputs),
              events = std::move(events), done = std::move(done)]() mutable {
    std::vector<Sequences> sequences;
    for (size_t i = 0; i < generations.size(); ++i) {
      generations[i]->replaying_ = true;
      sequences.push_back(generations[i]->Prepare(std::move(inputs[i])));
      for (auto& sequence : sequences.back()) sequence->past.emplace();
    }
    for (const v1::SequenceEvent& event : events) {
      if (event.prompt() >= sequences.size()) continue;
      const Sequences& of_prompt = sequences[event.prompt()];
      if (event.choice() >= of_prompt.size()) continue;
      // The earlier router could not go on, but this one can.
      if (event.error_code() == static_cast<int32_t>(absl::StatusCode::kUnavailable)) continue;
      SequencePast& past = *of_prompt[event.choice()]->past;
      if (event.has_token()) past.tokens.push_back(event.token());
      past.n_prompt_logprobs += static_cast<uint32_t>(event.prompt_logprobs_size());
      generations[event.prompt()]->OnEvent(event);
    }
    for (size_t i = 0; i < generations.size(); ++i) {
      generations[i]->replaying_ = false;
      generations[i]->Submit(std::move(sequences[i]));
    }
    std::move(done)();
  });
}

void Generation::WriteDone(bool ok) {
  services_.lane->Post([self = shared_from_this(), ok] {
    self->is_writing_ = false;
    if (!ok) self->Abort(absl::CancelledError("the client is gone"));
    self->Pump();
  });
}

void Generation::Cancel(absl::Status status) {
  cancelled_ = true;
  services_.lane->Post(
      [self = shared_from_this(), status = std::move(status)] { self->Abort(status); });
}

Generation::Sequences Generation::Prepare(absl::StatusOr<GenerationInput> input) {
  SC_CHECK(!submitted_);
  submitted_ = true;
  absl::Status good = input.status();
  if (good.ok()) good = arrival_.caller.CheckPriority(input->priority);
  if (!good.ok() && failure_.ok()) {
    failure_ = good;
    EndTrace(std::string(failure_.message()));
  }
  if (!failure_.ok()) {
    Pump();
    return {};
  }

  input_ = *std::move(input);
  KeepToOwner(arrival_.caller.tenant, input_);
  prompt_.mutable_token_ids()->Add(input_.prompt->begin(), input_.prompt->end());
  prompt_.set_text(input_.prompt_text);
  auto sequences = MakeSequences(input_);
  for (uint32_t i = 0; i < sequences.size(); ++i) {
    choices_.push_back(
        Choice{.id = first_id_ + i,
               .assembler = OutputAssembler(services_.model->tokenizer, input_.skip_special_tokens,
                                            input_.sampling.stop, input_.sampling.slot.min_tokens(),
                                            input_.output.shown_specials),
               .channels = OutputChannels(
                   &input_.output, fmt::format("{}/{}/{}", request_id_,
                                               arrival_.wall_time.time_since_epoch().count(), i))});
    sequences[i]->id = choices_.back().id;
    sequences[i]->sink = std::make_shared<Sink>(shared_from_this(), i);
    sequences[i]->call = call_;
    sequences[i]->account = AccountOf(arrival_.caller);
    if (trace_) sequences[i]->trace_id = trace_->trace_id();
  }
  return sequences;
}

void Generation::Submit(Sequences sequences) {
  if (ended_ || !failure_.ok()) return;
  std::erase_if(sequences, [this](const auto& sequence) {
    return choices_[sequence->id - first_id_].finished;
  });
  submitted_at_ = Clock::now();
  services_.scheduler->Submit(std::move(sequences));
}

void Generation::Hand(v1::SequenceEvent event) {
  auto hand = [self = shared_from_this()](v1::SequenceEvent committed) {
    self->services_.lane->Post([self, event = std::move(committed)] { self->OnEvent(event); });
  };
  if (journal_ == nullptr) return hand(std::move(event));
  event.set_prompt(prompt_index_);
  journal_->Append(journal_stream_, std::move(event), std::move(hand));
}

void Generation::OnEvent(const v1::SequenceEvent& event) {
  if (event.queued()) return OnQueued();
  if (event.error_code() == 0) return OnOutput(event);
  OnError(absl::Status(static_cast<absl::StatusCode>(event.error_code()), event.error()));
}

void Generation::OnQueued() {
  if (std::exchange(queued_, true)) return;
  if (!ended_) writer_->OnQueued();
}

void Generation::OnError(absl::Status status) {
  // Counts as refused also if it was queued and then evicted from a full queue.
  refused_ = !queued_ || absl::IsResourceExhausted(status);
  Abort(std::move(status));
}

void Generation::OnOutput(const v1::SequenceEvent& event) {
  Choice& choice = choices_[event.choice()];
  if (ended_ || !failure_.ok() || choice.finished) return;
  const auto finish = static_cast<Finish>(event.finish());
  last_event_at_ = TimeOf(event);
  choice.preemptions = event.preemptions();
  if (event.choice() == 0 && !std::exchange(times_known_, true)) {
    queue_ms_ = event.queue_ms();
    n_cached_tokens_ = event.cached_tokens();
    stored_tokens_ = event.stored_tokens();
  }
  TakePromptLogprobs(event.prompt_logprobs());
  if (event.has_token()) AddToken(choice, event);
  if (!event.values().empty()) AddValues(choice, event);
  if (choice.assembler.stop() == nullptr && finish != Finish::kNone) {
    choice.channels.Push(choice.assembler.End(), &choice.pending);
  }
  const std::string* const stop = choice.assembler.stop();
  if (stop != nullptr || finish != Finish::kNone) choice.channels.End(&choice.pending);
  if (stop != nullptr || choice.channels.done()) {
    if (finish == Finish::kNone) services_.scheduler->Cancel(choice.id);
    FinishChoice(choice, v1::FINISH_REASON_STOP, stop != nullptr ? *stop : "");
  } else if (finish == Finish::kStopToken) {
    FinishChoice(choice, v1::FINISH_REASON_STOP,
                 event.has_token() ? fmt::format("{}", event.token()) : "");
  } else if (finish == Finish::kLength) {
    FinishChoice(choice, v1::FINISH_REASON_LENGTH, "");
  }
  Pump();
  HoldPending();
}

void Generation::HoldPending() {
  if (ended_) return backlog_.ShrinkTo(0);
  backlog_.ShrinkTo(pending_bytes_);
  if (backlog_.GrowTo(pending_bytes_)) return;
  Abort(absl::ResourceExhaustedError(
      "the output waits for a client that does not read it, and the memory for requests "
      "(--request-memory) is taken"));
}

void Generation::NoteFirstOutput(const v1::SequenceEvent& event) {
  if (first_token_at_) return;
  first_token_at_ = TimeOf(event);
  ttft_ms_ = Milliseconds(*first_token_at_ - arrival_.time).count();
  if (replaying_) return;
  services_.metrics->ObserveFirstToken(ttft_ms_ / 1000);
  services_.metrics->ObserveQueue(event.queue_ms() / 1000);
}

void Generation::AddValues(Choice& choice, const v1::SequenceEvent& event) {
  NoteFirstOutput(event);
  *choice.pending.mutable_values() = event.values();
  choice.has_pending = true;
  choice.pending_bytes += event.values_size() * sizeof(float);
  pending_bytes_ += event.values_size() * sizeof(float);
}

void Generation::AddToken(Choice& choice, const v1::SequenceEvent& event) {
  const Clock::time_point time = TimeOf(event);
  NoteFirstOutput(event);
  if (choice.last_token_time != Clock::time_point{} && !replaying_) {
    services_.metrics->ObserveInterToken(Seconds(time - choice.last_token_time).count());
  }
  choice.last_token_time = time;
  ++n_completion_tokens_;

  choice.has_pending = true;
  choice.pending.add_token_ids(event.token());
  const size_t n_bytes = kTokenBytes + (event.has_logprobs() ? LogprobsBytes(event.logprobs()) : 0);
  choice.pending_bytes += n_bytes;
  pending_bytes_ += n_bytes;
  if (event.has_logprobs()) {
    FillLogprobs(*services_.model->tokenizer, event.token(), event.logprobs(),
                 choice.pending.add_logprobs());
  }
  // A stop token ends the text but is not part of it.
  if (static_cast<Finish>(event.finish()) == Finish::kStopToken) return;
  const bool was_reasoning = choice.channels.is_reasoning();
  choice.channels.Push(choice.assembler.Push(event.token()), &choice.pending);
  // The tokens of the marks that open and close reasoning also count.
  if (was_reasoning || choice.channels.is_reasoning()) {
    choice.pending.set_reasoning_tokens(choice.pending.reasoning_tokens() + 1);
    ++n_reasoning_tokens_;
  }
}

void Generation::FinishChoice(Choice& choice, v1::FinishReason reason, std::string stop_reason) {
  choice.finished = true;
  choice.has_pending = true;
  if (reason == v1::FINISH_REASON_STOP && choice.channels.called_tools()) {
    reason = v1::FINISH_REASON_TOOL_CALLS;
  }
  choice.pending.set_finish_reason(reason);
  choice.pending.set_stop_reason(std::move(stop_reason));
  ++n_finished_;
  if (n_finished_ < choices_.size() || replaying_) return;
  LogEnd(reason, absl::OkStatus());
  EndTrace("");
  services_.metrics->ObserveEnd(
      reason == v1::FINISH_REASON_LENGTH ? RouterMetrics::End::kLength : RouterMetrics::End::kStop,
      Seconds(Clock::now() - arrival_.time).count());
}

void Generation::TakePromptLogprobs(
    const google::protobuf::RepeatedPtrField<v1::Logprobs>& logprobs) {
  for (const v1::Logprobs& one : logprobs) {
    const size_t position = prompt_.logprobs_size() + 1;
    if (position >= input_.prompt->size()) return;
    FillLogprobs(*services_.model->tokenizer, (*input_.prompt)[position], one,
                 prompt_.add_logprobs());
    prompt_bytes_ += LogprobsBytes(one);
    pending_bytes_ += LogprobsBytes(one);
  }
}

void Generation::Abort(absl::Status status) {
  if (ended_ || !failure_.ok()) return;
  failure_ = std::move(status);
  if (!replaying_ && (n_finished_ < choices_.size() || choices_.empty())) {
    LogEnd(v1::FINISH_REASON_UNSPECIFIED, failure_);
    EndTrace(std::string(failure_.message()));
    if (refused_) {
      services_.metrics->CountRefused(failure_.code());
    } else {
      services_.metrics->ObserveEnd(RouterMetrics::End::kAbort,
                                    Seconds(Clock::now() - arrival_.time).count());
    }
  }
  for (const Choice& choice : choices_) {
    if (!choice.finished) services_.scheduler->Cancel(choice.id);
  }
  Pump();
}

void Generation::Pump() {
  while (WriteNext()) {
  }
}

bool Generation::WriteNext() {
  // Before submission, another thread still reads the request message.
  if (ended_ || is_writing_ || !submitted_) return false;
  if (!failure_.ok()) {
    ended_ = true;
    writer_->End(failure_);
    return false;
  }
  if (!PromptIsComplete()) return false;
  Choice* choice = NextPending();
  if (choice == nullptr) return false;
  writing_.Clear();
  writing_.Swap(&choice->pending);
  choice->has_pending = false;
  pending_bytes_ -= std::exchange(choice->pending_bytes, 0);
  next_choice_ = (choice->id - first_id_ + 1) % choices_.size();
  writing_.set_request_id(request_id_);
  writing_.set_index(static_cast<uint32_t>(choice->id - first_id_));
  if (!std::exchange(prompt_sent_, true)) {
    writing_.mutable_prompt()->Swap(&prompt_);
    pending_bytes_ -= std::exchange(prompt_bytes_, 0);
  }
  if (n_finished_ == choices_.size() && NextPending() == nullptr) {
    FillUsage(writing_);
    ended_ = true;
    writer_->WriteLast(writing_);
    return false;
  }
  is_writing_ = true;
  if (!writer_->Write(writing_)) return false;
  is_writing_ = false;
  return true;
}

bool Generation::PromptIsComplete() const {
  return prompt_sent_ || input_.sampling.slot.n_prompt_logprobs() < 0 ||
         prompt_.logprobs_size() + 1 == static_cast<int>(input_.prompt->size());
}

Generation::Choice* Generation::NextPending() {
  for (size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[(next_choice_ + i) % choices_.size()];
    if (choice.has_pending) return &choice;
  }
  return nullptr;
}

void Generation::EndTrace(std::string error) {
  if (!trace_ || std::exchange(trace_ended_, true)) return;
  std::optional<Clock::time_point> scheduled;
  if (first_token_at_) {
    scheduled = *submitted_at_ + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double, std::milli>(queue_ms_));
  }
  trace_->End(request_id_, services_.model->name, arrival_.time, scheduled, first_token_at_,
              {.n_prompt_tokens = input_.prompt == nullptr ? 0 : input_.prompt->size(),
               .n_completion_tokens = n_completion_tokens_,
               .error = std::move(error)});
}

void Generation::LogEnd(v1::FinishReason finish, const absl::Status& status) const {
  // Refusals are counted; a line for each would be a flood's to write.
  const auto level = refused_ ? spdlog::level::debug : spdlog::level::info;
  if (!services_.log_requests || !spdlog::should_log(level)) return;
  EndedRequest request{.tenant = arrival_.caller.tenant,
                       .api = arrival_.api,
                       .n_prompt_tokens = input_.prompt == nullptr ? 0 : input_.prompt->size(),
                       .n_cached_tokens = n_cached_tokens_,
                       .n_output_tokens = n_completion_tokens_,
                       .n_choices = choices_.size(),
                       .ttft_ms = std::nullopt,
                       .duration_ms = Milliseconds(Clock::now() - arrival_.time).count(),
                       .finish = FinishReasonName(finish),
                       .status = status};
  if (n_completion_tokens_ > 0) request.ttft_ms = ttft_ms_;
  const LogRequest about(request_id_);
  spdlog::log(level, "{}", RequestLine(request));
}

void Generation::FillUsage(v1::GenerateResponse& message) const {
  message.mutable_usage()->set_prompt_tokens(input_.prompt->size());
  message.mutable_usage()->set_completion_tokens(n_completion_tokens_);
  message.mutable_usage()->set_cached_tokens(n_cached_tokens_);
  *message.mutable_usage()->mutable_stored_tokens() = stored_tokens_;
  message.mutable_usage()->set_reasoning_tokens(n_reasoning_tokens_);
  v1::Timing& timing = *message.mutable_timing();
  timing.set_queue_ms(queue_ms_);
  timing.set_ttft_ms(ttft_ms_);
  timing.set_total_ms(Milliseconds(last_event_at_ - arrival_.time).count());
  uint32_t preemptions = 0;
  for (const Choice& choice : choices_) preemptions += choice.preemptions;
  timing.set_preemptions(preemptions);
}

}  // namespace stagecoach::router
