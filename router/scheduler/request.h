// One sequence to generate, as the front end hands it to the scheduler. A request with n choices is
// n of these.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/trace/trace.h"
#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

using SequenceId = uint64_t;

using SharedTokens = std::shared_ptr<const std::vector<int32_t>>;

enum class Finish : uint8_t { kNone, kStopToken, kLength };

// What became of a sequence in one step.
struct SequenceOutput {
  std::span<const int32_t> tokens;         // new ones; 0 or 1, a stop token too
  const v1::Logprobs* logprobs = nullptr;  // of the new token, when asked for
  // Of the next prompt tokens, when asked for: over all calls those from token 1 on, each once.
  std::span<const v1::Logprobs* const> prompt_logprobs;
  Finish finish = Finish::kNone;
};

struct SequenceTimes {
  double queue_ms = 0;  // submission to first scheduled
  uint32_t preemptions = 0;
  uint32_t n_cached_tokens = 0;  // of the prompt, that were there at its first admission
};

// One of a traced sequence's steps, from its plan to its result; not all of them are told.
struct TracedStep {
  SpanId span_id{};  // that the stages' spans are children of
  uint64_t step = 0;
  uint32_t start = 0;  // position of the first token that it computes
  uint32_t n_tokens = 0;
  bool decode = false;
  std::chrono::steady_clock::time_point planned;
};

// Gets a sequence's tokens. Called on the scheduler's thread: must not block, only hand over.
class SequenceSink {
 public:
  virtual ~SequenceSink() = default;
  // The sequence waits or runs: it can only end early if it is cancelled or the pipeline is lost.
  virtual void OnQueued() {}
  // Before the step's output.
  virtual void OnTracedStep(const TracedStep& step) { static_cast<void>(step); }
  virtual void OnOutput(const SequenceOutput& output, const SequenceTimes& times) = 0;
  // The sequence ended for another reason; nothing follows. Not called after a Finish or after
  // Cancel.
  virtual void OnError(const absl::Status& status) = 0;
};

// What a client asked for at once: choices, of several prompts as well.
struct ClientCall {
  // The scheduler's thread alone uses these.
  bool begun = false;                   // one of its sequences was admitted
  std::vector<SequenceId> sequences{};  // all that were queued, those that have ended too
};

// On whose account a request is served: tenants share the pipeline by their weights.
struct Account {
  std::string tenant;   // empty: one for all who do not say who they are
  uint32_t weight = 1;  // at least 1
};

struct SequenceRequest {
  SequenceId id = 0;          // unique
  SharedTokens prompt;        // at least one token, all inside the vocabulary
  v1::SlotSampling sampling;  // final values
  uint32_t max_tokens = 0;    // at least 1; prompt + max_tokens <= max_model_len
  Account account;
  int32_t priority = 0;              // lower is served first, of its tenant's
  std::string cache_salt;            // KV is shared with sequences of the same only
  std::optional<TraceId> trace_id;   // of a traced request
  std::shared_ptr<ClientCall> call;  // null: of what is submitted with it
  std::shared_ptr<SequenceSink> sink;
};

}  // namespace stagecoach::router
