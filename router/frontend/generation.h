// One running request: n sequences in the scheduler on one side, one stream of messages on the
// other. Independent of the protocol that carries the messages.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/work_queue.h"
#include "router/access/memory_budget.h"
#include "router/frontend/arrival.h"
#include "router/frontend/request_trace.h"
#include "router/scheduler/request.h"
#include "router/text/output_assembler.h"
#include "router/text/output_channels.h"
#include "router/text/request_builder.h"
#include "stagecoach/v1/inference.pb.h"
#include "stagecoach/v1/journal.pb.h"

namespace stagecoach::router {

class Generation;
class Journal;
class RouterMetrics;
class Scheduler;

// Receives the messages. Runs on the generation's text thread. Exactly one call of WriteLast or End
// ends the stream, while no write is pending; the generation does not use the writer afterwards.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // The scheduler has queued the request. Called once, before any message.
  virtual void OnQueued() {}
  // True: written. False: the write is pending; `message` stays unchanged until
  // Generation::WriteDone, which must follow.
  virtual bool Write(const v1::GenerateResponse& message) = 0;
  // Writes the last message and an OK status; `message` lives as long as the generation.
  virtual void WriteLast(const v1::GenerateResponse& message) = 0;
  // Ends the stream without another message.
  virtual void End(const absl::Status& status) = 0;
};

// The generations of one client call, one per prompt.
using Generations = std::vector<std::shared_ptr<Generation>>;

// All state belongs to one text thread, `lane`. Public methods post to it; any thread may call
// them. While a write is pending, new output is merged into one message per choice (backpressure).
// Otherwise, the messages are a function of the request, its arrival and the scheduler's events.
class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  using Clock = std::chrono::steady_clock;

  struct Services {
    const ServedModel* model = nullptr;
    MemoryBudget* memory = nullptr;  // for output that waits for the client
    Scheduler* scheduler = nullptr;
    const RouterMetrics* metrics = nullptr;
    WorkQueue* lane = nullptr;  // has one thread
    bool log_requests = true;   // a line in the log for each that has ended
  };

  // Everything in `services` and the writer must outlive the stream's end; the lane must also
  // outlive the scheduler. The n ids from `first_id` on belong to this request alone. `arrival`:
  // latencies count from its time, and its caller owns the computed KV blocks. `call`: the client
  // call, to which other prompts may also belong.
  Generation(const Services& services, std::string request_id, SequenceId first_id,
             ResponseWriter* writer, Arrival arrival = {},
             std::optional<RequestTrace> trace = std::nullopt,
             std::shared_ptr<ClientCall> call = std::make_shared<ClientCall>());

  // Writes the scheduler's events to a stream of the journal, as those of prompt `prompt` of a
  // call. Call it before Start. The journal outlives the scheduler.
  void WriteTo(Journal* journal, uint64_t stream, uint32_t prompt);
  // Submits the request, or fails with the error in `input`. Call once.
  void Start(absl::StatusOr<GenerationInput> input);
  // Instead of Start, for all generations of a call that an earlier router began and whose events
  // so far are `events`: gives out their messages again, submits what has not ended, and then calls
  // `done`. The generations share a lane.
  static void Continue(Generations generations, std::vector<absl::StatusOr<GenerationInput>> inputs,
                       std::vector<v1::SequenceEvent> events, WorkQueue::Task done);
  void WriteDone(bool ok);
  // The client is gone or past its deadline.
  void Cancel(absl::Status status);
  // Whether Cancel was called, so that building the input is unnecessary. Any thread.
  bool cancelled() const { return cancelled_; }

  WorkQueue* lane() const { return services_.lane; }
  const Arrival& arrival() const { return arrival_; }
  const Caller& caller() const { return arrival_.caller; }
  const std::shared_ptr<ClientCall>& call() const { return call_; }

 private:
  using Sequences = std::vector<std::unique_ptr<SequenceRequest>>;

  struct Choice {
    SequenceId id = 0;
    OutputAssembler assembler;
    OutputChannels channels;
    v1::GenerateResponse pending;
    bool has_pending = false;
    size_t pending_bytes = 0;  // memory of `pending`, about
    bool finished = false;
    uint32_t preemptions = 0;
    Clock::time_point last_token_time;
  };

  class Sink;

  // The sequences to submit; none if the request has failed.
  Sequences Prepare(absl::StatusOr<GenerationInput> input);
  void Submit(Sequences sequences);
  // Passes an event on to OnEvent, after the journal has it. The scheduler's thread.
  void Hand(v1::SequenceEvent event);
  void OnEvent(const v1::SequenceEvent& event);
  void OnQueued();
  void OnError(absl::Status status);
  void OnOutput(const v1::SequenceEvent& event);
  void NoteFirstOutput(const v1::SequenceEvent& event);
  void AddToken(Choice& choice, const v1::SequenceEvent& event);
  void AddValues(Choice& choice, const v1::SequenceEvent& event);
  void FinishChoice(Choice& choice, v1::FinishReason reason, std::string stop_reason);
  void TakePromptLogprobs(const google::protobuf::RepeatedPtrField<v1::Logprobs>& logprobs);
  // Cancels the running sequences; the stream fails with `status` as soon as no write is pending.
  void Abort(absl::Status status);
  // Writes available output, or ends the stream, if possible now.
  void Pump();
  // Returns whether more can be written at once.
  bool WriteNext();
  // Takes memory for the output that waits for the client; aborts if there is none.
  void HoldPending();
  bool PromptIsComplete() const;
  Choice* NextPending();
  void EndTrace(std::string error);
  void LogEnd(v1::FinishReason finish, const absl::Status& status) const;
  void FillUsage(v1::GenerateResponse& message) const;
  Clock::time_point TimeOf(const v1::SequenceEvent& event) const {
    return arrival_.time + std::chrono::microseconds(event.time_us());
  }

  const Services services_;
  const std::string request_id_;
  const SequenceId first_id_;
  ResponseWriter* const writer_;
  const Arrival arrival_;
  const std::optional<RequestTrace> trace_;
  const std::shared_ptr<ClientCall> call_;
  std::atomic<bool> cancelled_{false};
  // Constant after the start.
  Journal* journal_ = nullptr;
  uint64_t journal_stream_ = 0;
  uint32_t prompt_index_ = 0;

  // Used only on the lane's thread.
  GenerationInput input_;
  bool submitted_ = false;
  bool queued_ = false;
  bool replaying_ = false;      // events of an earlier router, which has counted them
  bool refused_ = false;        // the scheduler refused the request
  std::deque<Choice> choices_;  // by index; addresses are stable, since assemblers refer to input_
  size_t next_choice_ = 0;      // the choice that writes next
  size_t n_finished_ = 0;
  v1::Prompt prompt_;        // moved into the first message
  size_t prompt_bytes_ = 0;  // memory of its log-probabilities, about
  bool prompt_sent_ = false;
  size_t pending_bytes_ = 0;  // of the prompt and all choices
  MemoryBudget::Lease backlog_;
  v1::GenerateResponse writing_;
  bool is_writing_ = false;
  bool ended_ = false;
  absl::Status failure_;
  uint32_t n_completion_tokens_ = 0;
  uint32_t n_reasoning_tokens_ = 0;  // part of n_completion_tokens_
  std::optional<Clock::time_point> submitted_at_;
  std::optional<Clock::time_point> first_token_at_;
  Clock::time_point last_event_at_;
  bool trace_ended_ = false;
  bool times_known_ = false;
  double queue_ms_ = 0;
  uint32_t n_cached_tokens_ = 0;    // prompt tokens from the prefix cache or a tier below
  v1::StoredTokens stored_tokens_;  // part of these
  double ttft_ms_ = 0;
};

}  // namespace stagecoach::router
