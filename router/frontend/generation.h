// One request on its way: n sequences in the scheduler on one side, one stream of messages on the
// other. Knows nothing of the protocol that carries the messages.
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
#include "router/frontend/arrival.h"
#include "router/frontend/request_trace.h"
#include "router/scheduler/request.h"
#include "router/text/output_assembler.h"
#include "router/text/output_channels.h"
#include "router/text/request_builder.h"
#include "stagecoach/v1/inference.pb.h"

namespace stagecoach::router {

class RouterMetrics;
class Scheduler;

// Where the messages go. Called on the generation's text thread. Exactly one of WriteLast and Fail
// ends the stream, when no write is under way; the generation does not use the writer afterwards.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;
  // The scheduler has taken the request. Once, before any message.
  virtual void OnQueued() {}
  // True: it is written. False: `message` stays as it is until Generation::WriteDone, which must
  // follow.
  virtual bool Write(const v1::GenerateResponse& message) = 0;
  // The last message and an OK end; `message` lives as long as the generation.
  virtual void WriteLast(const v1::GenerateResponse& message) = 0;
  virtual void Fail(const absl::Status& status) = 0;
};

// All state belongs to one text thread, `lane`; public methods post to it and may be called from
// any thread. While a write is under way, what comes is merged into one message a choice.
class Generation final : public std::enable_shared_from_this<Generation> {
 public:
  using Clock = std::chrono::steady_clock;

  struct Services {
    const ServedModel* model = nullptr;
    Scheduler* scheduler = nullptr;
    const RouterMetrics* metrics = nullptr;
    WorkQueue* lane = nullptr;  // of one thread
  };

  // Everything in `services` and the writer outlive the stream's end; the lane also outlives the
  // scheduler. `first_id` and the n - 1 ids after it are this request's alone. `arrival`: its
  // latencies count from there, and what it computes is kept for its caller. `call`: of which this
  // may be one of several prompts.
  Generation(const Services& services, std::string request_id, SequenceId first_id,
             ResponseWriter* writer, Arrival arrival = {},
             std::optional<RequestTrace> trace = std::nullopt,
             std::shared_ptr<ClientCall> call = std::make_shared<ClientCall>());

  // The request was found good and is submitted, or was not and fails. Once.
  void Start(absl::StatusOr<GenerationInput> input);
  void WriteDone(bool ok);
  // The client is gone or has waited long enough.
  void Cancel(absl::Status status);
  // Cancel was called: there is no need to build its input. Any thread.
  bool cancelled() const { return cancelled_; }

  WorkQueue* lane() const { return services_.lane; }
  const Caller& caller() const { return arrival_.caller; }
  const std::shared_ptr<ClientCall>& call() const { return call_; }

 private:
  // One step's outcome for one choice, copied off the scheduler's thread.
  struct Event {
    std::optional<int32_t> token;
    std::unique_ptr<v1::Logprobs> logprobs;
    std::vector<v1::Logprobs> prompt_logprobs;
    Finish finish = Finish::kNone;
    SequenceTimes times;
    Clock::time_point time;
  };

  struct Choice {
    SequenceId id = 0;
    OutputAssembler assembler;
    OutputChannels channels;
    v1::GenerateResponse pending;
    bool has_pending = false;
    bool finished = false;
    uint32_t preemptions = 0;
    Clock::time_point last_token_time;
  };

  class Sink;

  void Submit(absl::StatusOr<GenerationInput> input);
  void OnQueued();
  void OnError(absl::Status status);
  void OnEvent(uint32_t index, Event event);
  void AddToken(Choice& choice, const Event& event);
  void FinishChoice(Choice& choice, v1::FinishReason reason, std::string stop_reason);
  void TakePromptLogprobs(const std::vector<v1::Logprobs>& logprobs);
  // Cancels what runs; the stream fails with `status` as soon as no write is under way.
  void Abort(absl::Status status);
  // Writes what there is, or ends the stream, if that is possible now.
  void Pump();
  // Whether more can be written at once.
  bool WriteNext();
  bool PromptIsComplete() const;
  Choice* NextPending();
  void EndTrace(std::string error);
  void FillUsage(v1::GenerateResponse& message) const;

  const Services services_;
  const std::string request_id_;
  const SequenceId first_id_;
  ResponseWriter* const writer_;
  const Arrival arrival_;
  const std::optional<RequestTrace> trace_;
  const std::shared_ptr<ClientCall> call_;
  std::atomic<bool> cancelled_{false};

  // Of the lane's thread.
  GenerationInput input_;
  bool submitted_ = false;
  bool queued_ = false;
  bool refused_ = false;        // by the scheduler
  std::deque<Choice> choices_;  // by index; stable, as assemblers refer to input_
  size_t next_choice_ = 0;      // whose turn it is to write
  size_t n_finished_ = 0;
  v1::Prompt prompt_;  // until the first message
  bool prompt_sent_ = false;
  v1::GenerateResponse writing_;
  bool is_writing_ = false;
  bool ended_ = false;
  absl::Status failure_;
  uint32_t n_completion_tokens_ = 0;
  uint32_t n_reasoning_tokens_ = 0;  // of those
  std::optional<Clock::time_point> submitted_at_;
  std::optional<Clock::time_point> first_token_at_;
  bool trace_ended_ = false;
  double queue_ms_ = 0;
  uint32_t n_cached_tokens_ = 0;  // of the prompt
  double ttft_ms_ = 0;
};

}  // namespace stagecoach::router
