// A stage's step loop for one epoch: metadata in and on, hidden states in, layers, hidden states
// or samples out.
//
// Threads, each with one job, so that a step's metadata is at every stage before its hidden states:
//   metadata  takes plans (first stage) or metadata frames, checks them, passes them on at once,
//             then queues them for compute
//   hidden    takes hidden states (not on the first stage)
//   tokens    takes sampled tokens (first of several stages)
//             neither of the two where messages pass from device to device: compute then queues
//             what waits for them there
//   compute   carries out the steps strictly in order; alone touches model, ops and slot table
//   masks     some (last stage): compile grammars and compute what they allow next
//   finish    on a device that runs ahead: waits for each step's work and sends on what came of it,
//             while compute queues the next ones. Else compute does that itself.
//
// Any failure closes the epoch: all threads end, the listener hears why once, and the executor is
// done. A new epoch is a new executor.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/flight/flight_recorder.h"
#include "common/text/grammar_cache.h"
#include "common/trace/trace.h"
#include "kernels/ops.h"
#include "stagecoach/v1/stage.pb.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/model/stage_model.h"
#include "worker/stage/batch_builder.h"
#include "worker/stage/grammar_masks.h"
#include "worker/stage/hop_histogram.h"
#include "worker/stage/plan_checker.h"
#include "worker/stage/sampler.h"
#include "worker/stage/slot_table.h"
#include "worker/stage/stage_clock.h"
#include "worker/stage/stage_limits.h"
#include "worker/stage/step_meta.h"
#include "worker/stage/token_inbox.h"
#include "worker/transport/closable_queue.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

// Hears of an epoch. Called from the executor's threads, or from whoever calls Close; must not
// block nor call the executor back.
class StepListener {
 public:
  virtual ~StepListener() = default;
  virtual void OnResult(v1::StepResult result) = 0;       // last stage, in step order
  virtual void OnClosed(const absl::Status& reason) = 0;  // at most once, nothing follows
};

// Who hears of each step's times; they outlive the executor, and each may be null.
struct StepObservers {
  FlightRecorder* flight = nullptr;  // of all steps
  SpanSink* spans = nullptr;         // of those with a traced request
};

class StageExecutor {
 public:
  struct Config {
    uint64_t epoch = 0;
    int32_t stage = 0;
    int32_t n_stages = 1;
    StageLimits limits;
    std::vector<uint64_t> kv_blocks;  // by KV group
    // Last stage; null: sequences with a grammar fail.
    std::shared_ptr<text::GrammarCache> grammars;
    StepObservers observers;
    std::shared_ptr<WorkCounter> work = std::make_shared<WorkCounter>();  // the model's, too

    bool is_first() const { return stage == 0; }
    bool is_last() const { return stage + 1 == n_stages; }
  };

  // Starts the threads. The transport has joined (one stage alone never uses it), the model has its
  // KV cache; all outlive the executor, and nobody else uses model and ops until Stop() returns.
  // RESOURCE_EXHAUSTED when there is no memory for what comes back from the device.
  static absl::StatusOr<std::unique_ptr<StageExecutor>> Start(const Config& config,
                                                              StageModel* model, kernels::Ops* ops,
                                                              Transport* transport);
  ~StageExecutor();
  StageExecutor(const StageExecutor&) = delete;
  StageExecutor& operator=(const StageExecutor&) = delete;

  // One listener at a time; it gets the results that came before it. FAILED_PRECONDITION if there
  // is one already; the reason if the epoch is closed.
  absl::Status Attach(StepListener* listener);
  void Detach(StepListener* listener);  // no call is under way after it

  // First stage: takes a plan; does not block. An error (not the first stage, draining, more than
  // kMaxPlansAhead plans not computed yet, closed) leaves the epoch as it is; what is wrong with
  // the plan itself closes it.
  absl::Status Submit(v1::StepPlan plan);
  static constexpr size_t kMaxPlansAhead = 256;

  // Refuses new plans; returns when those taken are computed, or with the reason if closed before.
  absl::Status Drain();

  // Ends the epoch. Idempotent: the first reason stays.
  void Close(absl::Status reason);
  // Close, and wait for the threads (a step under way is finished first).
  void Stop(absl::Status reason);

  v1::StatsResponse Stats(bool reset);

  // How far it is, now. Takes no lock and so never waits, whatever holds the other threads.
  v1::StepProgress Progress() const;
  // All threads have ended. Of use after Close.
  bool has_ended() const { return n_running_ == 0; }

 private:
  StageExecutor(const Config& config, StageModel* model, kernels::Ops* ops, Transport* transport);
  absl::Status AllocateEnds();
  void StartThreads();

  using Time = StageClock::Clock::time_point;
  // A step that waits for compute. `view` points into `bytes`.
  struct KnownStep {
    std::string bytes;
    StepMetaView view;
    std::vector<v1::SlotSampling> sampling;  // by registration; first and last stage
    std::vector<std::shared_ptr<GrammarSequence>> grammars;  // by registration; last stage
    Time ready_at;
  };
  struct ArrivedHidden {
    Message message;
    Time arrived_at;
  };
  // Where a step's end lands on the host. One of them is null.
  struct StepEnd {
    std::unique_ptr<PendingSamples> samples;  // last stage
    kernels::Buffer hidden;                   // [max_batched_tokens, hidden_size] float32
  };
  // A step whose work is queued on the device.
  struct StartedStep {
    uint64_t step = 0;
    size_t n_rows = 0;
    uint64_t mark = 0;  // Ops::Mark
    size_t end = 0;     // of ends_
    std::vector<TraceRecord> traces;
    Time began, input;
  };
  // Ends of steps on the device: one is computed, one queued behind it.
  static constexpr size_t kStartedSteps = 2;

  void RunThread(absl::Status (StageExecutor::*loop)());
  absl::Status MetadataLoop();
  absl::Status HiddenLoop();
  absl::Status TokensLoop();
  absl::Status ComputeLoop();
  absl::Status FinishLoop();

  Time Record(uint64_t step, FlightTime what);  // the time now
  void Trace(const StartedStep& step, Time computed);
  void TakeLocked();  // a step
  absl::Status NextMetadata(std::string* bytes);
  absl::Status RunStep(KnownStep& step);
  void CountBubble();
  absl::Status AcceptTokens();
  absl::Status TakeHidden(const KnownStep& step);
  absl::Status TakeTokens(const KnownStep& step);
  void Forward(const StepMetaView& meta);
  // As RunStep, TakeTokens and TakeHidden, where messages pass from device to device.
  absl::Status RunStepOnDevice(KnownStep& step);
  absl::Status TakeTokensOnDevice(const StepMetaView& meta);
  absl::Status TakeHiddenOnDevice(const StepMetaView& meta);
  absl::Status StartEndOnDevice(const KnownStep& step);
  StartedStep NewStarted(const StepMetaView& meta) const;
  // Queues what ends the step: the samples, or the hidden states' way back.
  absl::Status StartEnd(const KnownStep& step);
  absl::Status AwaitSampledTokens(const StepMetaView& meta);
  absl::Status Finish(const StartedStep& step);
  absl::Status FinishSamples(const StartedStep& step);
  void Count(const StartedStep& step);
  void Deliver(v1::StepResult result);
  size_t HiddenBytes(size_t n_rows) const;

  const Config config_;
  StageModel* const model_;
  kernels::Ops* const ops_;
  Transport* const transport_;
  DeviceChannels* const device_;  // null: messages pass through the host

  PlanChecker checker_;  // metadata thread
  SlotTable slots_;      // compute thread, as are the next four
  BatchBuilder batch_;
  std::unique_ptr<GrammarMasks> masks_;  // last stage, as the next
  std::unique_ptr<Sampler> sampler_;
  std::vector<ArrivedToken> taken_tokens_;
  Time began_, input_;                        // of the step that is computed
  std::atomic<uint64_t> begun_{0}, done_{0};  // the last steps
  std::atomic<int> n_running_{0};             // threads
  std::vector<StepEnd> ends_;
  // First stage, by slot: the step that sampled last. Its token is on the device.
  std::vector<uint64_t> sampled_in_;

  ClosableQueue<v1::StepPlan> plans_;  // first stage
  ClosableQueue<KnownStep> steps_;
  ClosableQueue<ArrivedHidden> hidden_;
  ClosableQueue<size_t> free_ends_;
  ClosableQueue<StartedStep> started_;
  TokenInbox tokens_;
  StageClock clock_;

  // Held while the listener is called; taken before mutex_.
  std::mutex listener_mutex_;
  StepListener* listener_ = nullptr;  // guarded by listener_mutex_, as the next
  std::vector<v1::StepResult> early_results_;

  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status closed_;  // all below: guarded by mutex_
  bool draining_ = false;
  uint64_t n_taken_ = 0;  // steps
  uint64_t n_computed_ = 0;
  uint64_t n_started_ = 0;  // queued on the device, where messages pass there
  struct Counted {
    uint64_t steps = 0;
    uint64_t tokens = 0;
    uint64_t metadata_late_steps = 0;
    uint64_t bubbles = 0;
    HopHistogram hops;
    StepTimes on_device;
    IdleTime idle;  // of the device
    std::array<ChannelCounters, kChannels> channels_at_reset{};
  } counted_;

  std::mutex join_mutex_;
  std::vector<std::thread> threads_;  // guarded by join_mutex_
};

}  // namespace stagecoach::worker
