// For tests: a pipeline of toy stages in one process, and a router that plans every sequence to its
// end, in chunks and ahead of the sampled tokens.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "common/text/grammar_cache.h"
#include "kernels/ops.h"
#include "stagecoach/v1/step.pb.h"
#include "worker/stage/stage_executor.h"
#include "worker/stage/testing/toy_model.h"
#include "worker/transport/testing/fault_transport.h"

namespace stagecoach::worker {

StageLimits ToyLimits();

// Grammars over a vocabulary of kToyVocab: end tokens 0 and 1 (0 is the checkpoint's), then JSON's
// punctuation, letters, digits and some longer tokens.
std::shared_ptr<text::GrammarCache> ToyGrammars();

class ResultQueue final : public StepListener {
 public:
  void OnResult(v1::StepResult result) override;
  void OnFetched(v1::KvFetched fetched) override;
  void OnClosed(const absl::Status& reason) override;
  // Returns the next result, or the reason once the epoch is closed.
  absl::StatusOr<v1::StepResult> Next();
  absl::Status AwaitClosed();
  v1::KvFetched NextFetched();  // waits for the answer to a fetch

 private:
  Mutex mutex_;
  CondVar changed_;
  std::deque<v1::StepResult> results_ ABSL_GUARDED_BY(mutex_);
  std::deque<v1::KvFetched> fetched_ ABSL_GUARDED_BY(mutex_);
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
};

class ToyPipeline {
 public:
  static constexpr uint64_t kBlocks = 64;  // in each KV group

  enum class Kind {
    kHost,
    kRunsAhead,       // like a device that finishes its work after the calls return
    kDeviceChannels,  // hidden states and tokens pass as between GPUs
  };
  // embeds: sequences get hidden states.
  explicit ToyPipeline(int32_t n_stages, Kind kind = Kind::kHost, bool embeds = false,
                       v1::HiddenDType hidden_dtype = v1::HIDDEN_DTYPE_FLOAT32);
  ~ToyPipeline();

  // All stages share KV blocks through this store from the next Start on. Empty: they end the
  // exchange, which saves what is queued.
  void ShareKv(const std::string& store);
  // Joins all stages and makes their executors.
  void Start(uint64_t epoch);

  StageExecutor& stage(size_t i) { return *stages_[i].executor; }
  FaultTransport& transport(size_t i) { return *stages_[i].transport; }
  ResultQueue& heard(size_t i) { return *stages_[i].heard; }
  StageExecutor& first() { return stage(0); }
  ResultQueue& results() { return heard(stages_.size() - 1); }
  size_t size() const { return stages_.size(); }
  // With a kind that runs ahead: the stage's calls fail from now on.
  void FailDevice(size_t i) { stages_[i].lost = true; }

 private:
  struct Stage {
    std::atomic<bool> lost = false;
    std::unique_ptr<kernels::Ops> ops;
    std::unique_ptr<ToyModel> model;
    std::unique_ptr<FaultTransport> transport;
    std::unique_ptr<ResultQueue> heard;
    std::shared_ptr<KvExchange> exchange;
    std::unique_ptr<StageExecutor> executor;
  };
  const bool embeds_;
  const v1::HiddenDType hidden_dtype_;
  std::vector<Stage> stages_;
};

// A sequence to generate, and its results.
struct ToySequence {
  std::vector<int32_t> prompt;
  int32_t n_generate = 8;
  v1::SlotSampling sampling;

  std::vector<int32_t> generated;
  std::vector<v1::Logprobs> logprobs;         // of `generated`, if requested
  std::vector<v1::Logprobs> prompt_logprobs;  // of prompt tokens 1, 2, ...
  std::vector<float> values;                  // with pooling
};

v1::SlotSampling Greedy();

// Plans steps. Sequences enter slots when these become free.
class ToyPlanner {
 public:
  struct Options {
    int32_t n_slots = 4;
    int32_t chunk = 7;          // prefill tokens of a sequence in one step
    int32_t max_in_flight = 3;  // steps; decodes are planned before their tokens are known
  };

  ToyPlanner(uint64_t epoch, std::vector<ToySequence>* sequences, const Options& options);

  // Runs until all sequences have their tokens, or an error occurs.
  absl::Status Run(ToyPipeline& pipeline);

  // Returns the next step, or nothing when everything is planned.
  std::optional<v1::StepPlan> Next();

 private:
  struct Running {
    ToySequence* sequence = nullptr;
    int32_t n_planned = 0;  // positions
    int32_t n_samples = 0;
    std::vector<std::vector<uint32_t>> blocks;  // by KV group
    uint32_t slot = 0;
  };

  void Admit(v1::StepPlan* plan);
  bool PlanSlot(Running& running,
                v1::StepPlan* plan);  // whether the sequence is planned to its end
  absl::Status Take(const v1::StepResult& result);

  const uint64_t epoch_;
  const Options options_;
  std::deque<ToySequence*> waiting_;
  std::vector<Running> running_;
  std::vector<uint32_t> free_slots_;
  std::vector<std::vector<uint32_t>> free_blocks_;           // by KV group
  std::vector<uint32_t> to_release_;                         // to be released with the next step
  std::vector<std::vector<std::vector<uint32_t>>> to_free_;  // blocks, by KV group
  std::deque<std::map<uint32_t, ToySequence*>> in_flight_;   // by slot
  uint64_t step_ = 0;
};

// Generates the sequence alone, one position at a time, in one stage. Sampling rows are made from
// the plain token history. This is the reference for the pipeline's results.
void GenerateAlone(ToySequence* sequence);

}  // namespace stagecoach::worker
