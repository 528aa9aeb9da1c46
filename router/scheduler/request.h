// One sequence to generate, as the front end passes it to the scheduler. A request with n choices
// becomes n sequences.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/trace/trace.h"
#include "stagecoach/v1/inference.pb.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

using SequenceId = uint64_t;

using SharedTokens = std::shared_ptr<const std::vector<int32_t>>;

enum class Finish : uint8_t { kNone, kStopToken, kLength };

// The outcome of one step for one sequence.
struct SequenceOutput {
  std::span<const int32_t> tokens;         // 0 or 1 new tokens; a stop token is included
  const v1::Logprobs* logprobs = nullptr;  // of the new token, if requested
  // Log-probabilities of the next prompt tokens, if requested. All calls together cover tokens 1,
  // 2,
  // ..., each exactly once.
  std::span<const v1::Logprobs* const> prompt_logprobs;
  std::span<const float> values;  // with pooling, in place of tokens; the sequence finishes
  Finish finish = Finish::kNone;
};

struct SequenceTimes {
  double queue_ms = 0;  // submission to first scheduled
  uint32_t preemptions = 0;
  // Prompt tokens that were not computed at the first admission: the prefix cache or a tier below
  // it had them.
  uint32_t n_cached_tokens = 0;
  v1::StoredTokens stored;  // part of these
};

// One step of a traced sequence, from its plan to its result. Only a sample of the steps is
// reported.
struct TracedStep {
  SpanId span_id{};  // parent of the stages' spans
  uint64_t step = 0;
  uint32_t start = 0;  // position of the first token that the step computes
  uint32_t n_tokens = 0;
  bool decode = false;
  std::chrono::steady_clock::time_point planned;
};

// Receives the tokens of a sequence. Runs on the scheduler's thread: it must not block, only hand
// over.
class SequenceSink {
 public:
  virtual ~SequenceSink() = default;
  // The sequence is accepted and waits or runs. From now on it ends early only if it is cancelled,
  // if it is evicted from a full queue, if its grammar becomes too complex, or if the pipeline
  // drains or is lost.
  virtual void OnQueued() {}
  // Called before the step's output.
  virtual void OnTracedStep(const TracedStep& step) { static_cast<void>(step); }
  virtual void OnOutput(const SequenceOutput& output, const SequenceTimes& times) = 0;
  // The sequence ended without a Finish; no call follows. Never called after a Finish or after
  // Cancel.
  virtual void OnError(const absl::Status& status) = 0;
};

// The sequences that one client call submits: all choices, possibly of several prompts.
struct ClientCall {
  // One of its sequences was admitted. Sequences of one call may be in several schedulers.
  std::atomic<bool> begun{false};
};

// The account that a request is charged to: tenants share the pipeline by their weights (weighted
// fair share).
struct Account {
  std::string tenant;   // empty: the common tenant of all anonymous callers
  uint32_t weight = 1;  // at least 1
};

// What was generated of a sequence elsewhere: by another pipeline, or an earlier router.
struct SequencePast {
  std::vector<int32_t> tokens;     // fewer than max_tokens; the sink has had them
  uint32_t n_prompt_logprobs = 0;  // prompt tokens whose log-probabilities the sink has had
  bool was_admitted = false;
  std::optional<std::chrono::steady_clock::time_point> submitted;  // absent: with this Submit
  SequenceTimes times;
  // Pipelines lost in a row with the sequence in flight (sequence.h).
  uint32_t n_losses = 0;
  uint32_t n_generated_at_loss = 0;
};

// Whether the sequence's result needs all rows of its prompt, computed in one go of the pipeline.
inline bool IsMean(const v1::SlotSampling& sampling) {
  return sampling.pooling().what() == v1::SlotPooling::MEAN_HIDDEN;
}

struct SequenceRequest {
  SequenceId id = 0;          // unique
  SharedTokens prompt;        // at least one token, all inside the vocabulary
  v1::SlotSampling sampling;  // final values
  uint32_t max_tokens = 0;    // at least 1; prompt + max_tokens <= max_model_len
  Account account;
  int32_t priority = 0;              // within the tenant, a lower value is served first
  std::string cache_salt;            // KV blocks are shared only among sequences with the same salt
  std::optional<TraceId> trace_id;   // absent: the request is not traced
  std::shared_ptr<ClientCall> call;  // null: one call for all requests of this Submit
  std::shared_ptr<SequenceSink> sink;
  // The sequence goes on after it. It was queued once and is not refused because the queue is full.
  std::optional<SequencePast> past;
};

}  // namespace stagecoach::router
