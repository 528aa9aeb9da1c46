// A stage's step loop for one epoch: receives and forwards metadata, receives hidden states, runs
// the layers, sends hidden states or samples.
//
// Each thread has one job, so that a step's metadata reaches every stage before its hidden states:
//   metadata  takes plans (first stage) or metadata frames, checks them, forwards them at once,
//             then queues them for compute
//   hidden    receives hidden states (not on the first stage)
//   tokens    receives sampled tokens (first stage, if there are several stages)
//             hidden and tokens do not exist if messages pass from device to device: compute then
//             queues the work that waits for them on the device
//   compute   runs the steps strictly in order; the only user of model, ops and slot table
//   masks     several (last stage): compile grammars and compute the next masks
//   finish    on a device that runs ahead: waits for each step's work and sends its results on,
//             while compute queues the next steps. On other devices compute does this itself.
//
// Any failure closes the epoch: all threads end, the listener is told the reason once, and the
// executor cannot be used any more. A new epoch needs a new executor.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/closable_queue.h"
#include "common/flight/flight_recorder.h"
#include "common/mutex.h"
#include "common/text/grammar_cache.h"
#include "common/trace/trace.h"
#include "kernels/ops.h"
#include "stagecoach/v1/stage.pb.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/kv_exchange/kv_exchange.h"
#include "worker/model/stage_model.h"
#include "worker/stage/batch_builder.h"
#include "worker/stage/grammar_masks.h"
#include "worker/stage/hop_histogram.h"
#include "worker/stage/kv_copies.h"
#include "worker/stage/plan_checker.h"
#include "worker/stage/pooler.h"
#include "worker/stage/sampler.h"
#include "worker/stage/slot_table.h"
#include "worker/stage/stage_clock.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

// Receives the events of an epoch. Called from the executor's threads or from the caller of Close.
// Must not block and must not call the executor.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void OnResult(v1::StepResult result) = 0;       // last stage, in step order
  virtual void OnFetched(v1::KvFetched fetched) = 0;      // the answer to a Fetch
  virtual void OnClosed(const absl::Status& reason) = 0;  // at most once; no call follows
};

// Receivers of each step's times. They outlive the executor; each may be null.
struct StepObservers {
  FlightRecorder* flight = nullptr;  // of all steps
  SpanSink* spans = nullptr;         // of steps with a traced request
};

class StageExecutor {
 public:
  struct Config {
    uint64_t epoch = 0;
    int32_t stage = 0;
    int32_t n_stages = 1;
    StageLimits limits;
    std::vector<uint64_t> kv_blocks;  // by KV group
    // Last stage. Null: sequences with a grammar fail.
    std::shared_ptr<text::GrammarCache> grammars;
    std::shared_ptr<KvExchange> exchange;  // null: there is no store for KV blocks
    StepObservers observers;
    std::shared_ptr<WorkCounter> work = std::make_shared<WorkCounter>();  // shared with the model

    bool is_first() const { return stage == 0; }
    bool is_last() const { return stage + 1 == n_stages; }
  };

  // Starts the threads. The transport must have joined (a single stage never uses it) and the model
  // must have its KV cache. All arguments outlive the executor, and nobody else uses model and ops
  // until Stop() returns. RESOURCE_EXHAUSTED if there is no memory for the results that come back
  // from the device.
  static absl::StatusOr<std::unique_ptr<StageExecutor>> Start(const Config& config,
                                                              StageModel* model, kernels::Ops* ops,
                                                              Transport* transport);
  ~StageExecutor();
  StageExecutor(const StageExecutor&) = delete;
  StageExecutor& operator=(const StageExecutor&) = delete;

  // Only one listener at a time. It also gets the results from before the call. FAILED_PRECONDITION
  // if another listener is attached; the reason if the epoch is closed.
  absl::Status Attach(StepListener* listener);
  void Detach(StepListener* listener);  // no call is in progress when it returns

  // First stage: takes a plan; does not block. An error of the call (not the first stage, draining,
  // more than kMaxPlansAhead plans not yet computed, closed) leaves the epoch unchanged. An error
  // in the plan itself closes the epoch.
  absl::Status Submit(v1::StepPlan plan);
  static constexpr size_t kMaxPlansAhead = 256;

  // Reads KV blocks from the store, for later plans that restore them. The listener gets the
  // answer. Does not block.
  void Fetch(v1::KvFetch fetch);

  // Refuses new plans. Returns when the accepted plans are computed, or with the reason if the
  // epoch is closed before that.
  absl::Status Drain();

  // Ends the epoch. Idempotent: the first reason is kept.
  void Close(absl::Status reason);
  // Closes the epoch and waits for the threads. A running step is finished first.
  void Stop(absl::Status reason);

  v1::StatsResponse Stats(bool reset);

  // The current progress. Takes no lock, so it never waits for the other threads.
  v1::StepProgress Progress() const;
  // Whether all threads have ended. Useful after Close.
  bool has_ended() const { return n_running_ == 0; }

 private:
  StageExecutor(const Config& config, StageModel* model, kernels::Ops* ops, Transport* transport);
  absl::Status AllocateEnds();
  void StartThreads();

  using Time = StageClock::Clock::time_point;
  // A step queued for compute. `view` points into `bytes`.
  struct KnownStep {
    std::string bytes;
    StepMetaView view;
    std::vector<v1::SlotSampling> sampling;  // by registration; first and last stage only
    std::vector<std::shared_ptr<GrammarSequence>> grammars;  // by registration; last stage
    Time ready_at;
  };
  struct ArrivedToken {
    uint64_t step = 0;  // the step that sampled it
    TokenRecord record{};
  };
  struct ArrivedHidden {
    Message message;
    Time arrived_at;
  };
  // Host memory for the results of a step. One of the three is set.
  struct StepEnd {
    std::unique_ptr<PendingSamples> samples;  // last stage
    std::unique_ptr<PendingPool> pool;        // last stage of an embedding model
    kernels::Buffer hidden;                   // PassedBytes of max_batched_tokens
  };
  // A step that is queued on the device.
  struct StartedStep {
    uint64_t step = 0;
    size_t n_rows = 0;
    uint64_t mark = 0;  // Ops::Mark
    size_t end = 0;     // index into ends_
    std::vector<TraceRecord> traces;
    Time began, input;
    KvAfterStep kv;
  };
  // Step ends on the device: one is computed while another is queued behind it.
  static constexpr size_t kStartedSteps = 2;

  void RunThread(absl::Status (StageExecutor::*loop)());
  absl::Status MetadataLoop();
  absl::Status HiddenLoop();
  absl::Status TokensLoop();
  absl::Status ComputeLoop();
  absl::Status FinishLoop();

  Time Record(uint64_t step, FlightTime what);  // returns the current time
  void Trace(const StartedStep& step, Time computed);
  void TakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // counts a step as taken
  absl::Status NextMetadata(std::string* bytes);
  absl::Status RunStep(KnownStep& step);
  void CountBubble();
  void QueueTokens(uint64_t step, std::span<const TokenRecord> tokens);
  absl::Status AcceptTokens();
  absl::Status TakeHidden(const KnownStep& step);
  absl::Status TakeTokens(const KnownStep& step);
  void Forward(const StepMetaView& meta);
  // As RunStep, TakeTokens and TakeHidden, if messages pass from device to device.
  absl::Status RunStepOnDevice(KnownStep& step);
  absl::Status TakeTokensOnDevice(const StepMetaView& meta);
  absl::Status TakeHiddenOnDevice(const StepMetaView& meta);
  absl::Status StartEndOnDevice(const KnownStep& step);
  StartedStep NewStarted(const StepMetaView& meta);
  // Queues the end of a step: the samples, or the copy of the hidden states to the host.
  absl::Status StartEnd(const KnownStep& step);
  absl::Status AwaitSampledTokens(const StepMetaView& meta);
  absl::Status Finish(StartedStep step);
  // The last stage's part of the two.
  absl::Status StartResult(const StepMetaView& meta, StepEnd& end);
  absl::Status FinishResult(const StartedStep& step);
  // Tells the exchange how long the step's rows took.
  void TellSpeed(const StartedStep& step, Time computed, const StepTimes* on_device);
  void Count(const StartedStep& step);
  void Deliver(v1::StepResult result);
  void Deliver(v1::KvFetched fetched);
  size_t HiddenBytes(size_t n_rows) const;

  const Config config_;
  StageModel* const model_;
  kernels::Ops* const ops_;
  Transport* const transport_;
  DeviceChannels* const device_;  // null: messages pass through the host

  PlanChecker checker_;  // metadata thread
  SlotTable slots_;      // compute thread, like the next six
  BatchBuilder batch_;
  KvCopies kv_copies_;
  KvAfterStep kv_after_;                 // of the current step
  std::unique_ptr<GrammarMasks> masks_;  // last stage, like the next
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<Pooler> pooler_;  // in place of the two, for an embedding model
  std::vector<ArrivedToken> taken_tokens_;
  Time began_, input_;                                      // of the current step
  Time computed_;                                           // the last step; thread of Finish
  std::atomic<uint64_t> received_{0}, begun_{0}, done_{0};  // numbers of the last steps
  std::atomic<int> n_running_{0};                           // number of running threads
  std::vector<StepEnd> ends_;
  // First stage, by slot: the last step that sampled. Its token is on the device.
  std::vector<uint64_t> sampled_in_;

  ClosableQueue<v1::StepPlan> plans_;  // first stage
  ClosableQueue<KnownStep> steps_;
  ClosableQueue<ArrivedHidden> hidden_;
  ClosableQueue<size_t> free_ends_;
  ClosableQueue<StartedStep> started_;
  // Passes sampled tokens to the compute thread, from the tokens channel or from a step that has
  // ended on this stage. It has no capacity limit, because the pipeline's depth bounds its content.
  // A blocking sender could deadlock with a stage that waits for it.
  ClosableQueue<ArrivedToken> tokens_;
  StageClock clock_;

  // Held while the listener is called. Lock it before mutex_.
  Mutex listener_mutex_;
  StepListener* listener_ ABSL_GUARDED_BY(listener_mutex_) = nullptr;
  std::vector<v1::StepResult> early_results_ ABSL_GUARDED_BY(listener_mutex_);

  Mutex mutex_;
  CondVar changed_;
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t n_taken_ ABSL_GUARDED_BY(mutex_) = 0;  // steps
  uint64_t n_computed_ ABSL_GUARDED_BY(mutex_) = 0;
  // Steps queued on the device, if messages pass there.
  uint64_t n_started_ ABSL_GUARDED_BY(mutex_) = 0;
  struct Counted {
    v1::StatsResponse stats;  // its counters; Stats fills in the rest
    HopHistogram hops;
    StepTimes on_device;
    IdleTime idle;  // of the device
    std::array<ChannelCounters, kChannels> channels_at_reset{};
  } counted_ ABSL_GUARDED_BY(mutex_);

  Mutex join_mutex_;
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(join_mutex_);
};

}  // namespace stagecoach::worker
