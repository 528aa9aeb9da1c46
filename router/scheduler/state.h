// All state of the scheduler, and the transitions that keep it consistent: a sequence is waiting,
// running or ended; a slot is free or one running sequence's; a block is free or in one running
// sequence's table.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/sequence.h"
#include "router/scheduler/tenant.h"
#include "router/scheduler/waiting_queue.h"

namespace stagecoach::router {

// A step that was sent and whose result has not come. Slots are reused, so it remembers whose its
// rows are.
struct InFlightStep {
  struct Row {
    std::shared_ptr<Sequence> sequence;
    uint32_t slot;
    uint32_t start;
    uint32_t n_tokens;
    bool sample;
    std::optional<SpanId> span_id = {};  // of a step that is traced
  };
  uint64_t step = 0;
  std::chrono::steady_clock::time_point planned = {};
  std::vector<Row> rows;  // in the plan's order
};

// Not thread-safe: the scheduler's thread owns it.
class SchedulerState {
 public:
  explicit SchedulerState(const SchedulerConfig& config);

  const SchedulerConfig& config() const { return config_; }
  KvBlocks& kv() { return kv_; }
  const KvBlocks& kv() const { return kv_; }
  const WaitingQueue& waiting() const { return waiting_; }
  Tenants& tenants() { return tenants_; }
  const Tenants& tenants() const { return tenants_; }
  // All tenants' sequences, by priority, then arrival.
  using RunningSet = absl::btree_set<Sequence*, ServedFirst>;
  const RunningSet& running() const { return running_; }
  bool empty() const { return sequences_.empty(); }
  bool has_free_slot() const { return !free_slots_.empty(); }
  size_t n_free_slots() const { return free_slots_.size(); }
  // Null when there is none of this id.
  Sequence* Find(SequenceId id) const;

  // A new sequence, waiting. has_twin: one with the same prompt waits already, and is served
  // before. REQUIRES: its id is not in use.
  void Add(std::unique_ptr<SequenceRequest> request,
           std::chrono::steady_clock::time_point submitted, bool has_twin = false);
  // Waiting -> running: gives it a slot and what is remembered of its tokens. REQUIRES:
  // has_free_slot(), none of it in flight.
  void Admit(Sequence* sequence);
  // Whether it may begin with what others computed: not where it wants the logprobs of its prompt.
  static bool MayAdopt(const Sequence& sequence);
  // Its blocks that are full, with tokens that are known, may be adopted by others from now on.
  void Remember(Sequence* sequence);
  // Its tenant has this many tokens of the step that is being planned. Rows that prefill count at
  // once, so that the next sequence to be admitted is another tenant's; decodes with the step.
  void Charge(Sequence* sequence, uint64_t n_tokens, bool at_once);
  // The next step is planned from here on: whoever had least so far comes first.
  void BeginTurn();
  // Running -> waiting: its slot and the blocks that nobody shares are free at once.
  void Preempt(Sequence* sequence);
  // Waiting or running -> ended: forgotten but for its rows in flight.
  void End(Sequence* sequence);
  // A token of it has come.
  void AppendToken(Sequence* sequence, int32_t token);
  // Ends what is left of a call. Returns what was ended.
  std::vector<std::shared_ptr<Sequence>> EndCall(const ClientCall& call);
  // Ends those of calls that have not begun. Returns what was ended, in order of service.
  std::vector<std::shared_ptr<Sequence>> EndNotBegun();
  // Ends all, and forgets what is in flight. Returns what was ended, in order of service.
  std::vector<std::shared_ptr<Sequence>> EndAll();

  // Slots whose sequence has gone, for the next plan to release.
  std::vector<uint32_t> TakeReleases();

  const std::deque<InFlightStep>& in_flight() const { return in_flight_; }
  void PushInFlight(InFlightStep step);
  // REQUIRES: something is in flight. Takes its rows off their sequences' counts.
  InFlightStep PopInFlight();
  double InFlightMs() const;

  // Stages do not know yet that some slot is free.
  bool has_releases() const { return !releases_.empty(); }

  uint64_t n_steps() const { return n_steps_; }
  // How far the pipeline got, in tokens: of a step as many as it holds, and at least those that
  // take as long as reading the weights does. Decisions that wait go by it and not by time, so that
  // they come out the same again.
  uint64_t clock() const { return clock_; }
  uint64_t n_preemptions() const { return n_preemptions_; }
  // Preemptions for a tenant that waited below its share; counted above as well.
  uint64_t n_share_preemptions() const { return n_share_preemptions_; }
  void CountSharePreemption() { ++n_share_preemptions_; }
  uint64_t n_generated_tokens() const { return n_generated_tokens_; }
  uint64_t n_prompt_tokens() const { return n_prompt_tokens_; }
  uint64_t n_prefix_queries() const { return n_prefix_queries_; }
  uint64_t n_prefix_hits() const { return n_prefix_hits_; }

  // Recounts everything from the sequences up; O(blocks + sequences).
  void CheckConsistency() const;

 private:
  // Into the queue, with what its prefill is to compute as far as is known.
  void Queue(Sequence* sequence, bool has_twin = false);
  void Vacate(Sequence* sequence);
  // In order of service, which is returned.
  std::vector<std::shared_ptr<Sequence>> EndEach(std::vector<std::shared_ptr<Sequence>> sequences);
  void CheckSequence(const Sequence& sequence, uint32_t n_rows, uint32_t n_samples) const;

  const SchedulerConfig config_;
  KvBlocks kv_;
  absl::flat_hash_map<SequenceId, std::shared_ptr<Sequence>> sequences_;  // that have not ended
  Tenants tenants_;
  WaitingQueue waiting_;
  RunningSet running_;
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> releases_;
  std::deque<InFlightStep> in_flight_;  // oldest first
  std::chrono::steady_clock::time_point busy_since_;
  std::chrono::steady_clock::duration busy_{};
  uint64_t next_arrival_ = 0;
  uint64_t n_steps_ = 0;
  uint64_t clock_ = 0;
  uint64_t n_preemptions_ = 0;
  uint64_t n_share_preemptions_ = 0;
  uint64_t n_generated_tokens_ = 0;
  uint64_t n_prompt_tokens_ = 0;
  uint64_t n_prefix_queries_ = 0, n_prefix_hits_ = 0;
};

}  // namespace stagecoach::router
