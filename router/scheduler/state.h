// All state of the scheduler, and the transitions that keep it consistent: a sequence is loading,
// waiting, running or ended; a slot is free or belongs to one running sequence; a block is free or
// in the tables of running sequences.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/kv_loads.h"
#include "router/scheduler/scheduler.h"
#include "router/scheduler/sequence.h"
#include "router/scheduler/tenant.h"
#include "router/scheduler/waiting_queue.h"

namespace stagecoach::router {

// A step that was sent, and whose result has not come. Slots are reused, so each row records its
// sequence.
struct InFlightStep {
  struct Row {
    std::shared_ptr<Sequence> sequence;
    uint32_t slot;
    uint32_t start;
    uint32_t n_tokens;
    bool sample;
    std::optional<SpanId> span_id = {};  // set if the row is traced
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
  KvLoads& loads() { return loads_; }
  Tenants& tenants() { return tenants_; }
  const Tenants& tenants() const { return tenants_; }
  // All tenants' sequences, by priority, then arrival.
  using RunningSet = absl::btree_set<Sequence*, ServedFirst>;
  const RunningSet& running() const { return running_; }
  bool empty() const { return sequences_.empty(); }
  bool has_free_slot() const { return !free_slots_.empty(); }
  size_t n_free_slots() const { return free_slots_.size(); }
  // Null if there is no sequence with this id.
  Sequence* Find(SequenceId id) const;

  // Adds a new sequence, which waits or loads. has_twin: the sequence before it has the same prompt
  // and is served before this one. REQUIRES: its id is not in use.
  void Add(std::unique_ptr<SequenceRequest> request,
           std::chrono::steady_clock::time_point submitted, bool has_twin = false);
  // Waiting -> running: assigns a slot and adopts remembered blocks. REQUIRES: has_free_slot(), no
  // row of it is in flight.
  void Admit(Sequence* sequence);
  // All stages have these blocks of a fetch: its sequences enter the queue.
  void Fetched(const v1::KvFetched& fetched);
  // No fetch will be answered, and the stages forget all. Sequences that load enter the queue.
  // None loads until BeginEpoch.
  void AbandonLoads();
  // The sequence was admitted by the step being planned. If the stages hold blocks for it that the
  // prefix cache lacks, it goes on behind them, as soon as plans have restored them.
  void BeginRestore(Sequence* sequence);
  // Whether there is something to restore that the stages may copy while they compute other rows.
  bool MayRestoreBeside(const Sequence& sequence) const;
  // Lets `plan` restore a portion of what there is.
  void RestoreBeside(v1::StepPlan& plan);
  // Lets `plan` restore the rest, before it gets a row of the sequence.
  void FinishRestore(Sequence* sequence, v1::StepPlan& plan);
  // Whether it may adopt blocks of other sequences. False for a mean, and while it needs its
  // prompt's logprobs.
  static bool MayAdopt(const Sequence& sequence);
  // A waiting sequence may be admitted now. Lets it load first what the tiers below the device
  // hold, if it has lost its blocks since it could load last. kBusy: other loads are under way, and
  // its turn comes again when one of them ends. kNone: it goes on without.
  KvLoads::Begun LoadInTurn(Sequence* sequence);
  // Its full blocks with known tokens may be adopted by other sequences from now on.
  void Remember(Sequence* sequence);
  // Charges the sequence's tenant for tokens of the step being planned. Prefill rows count at once
  // (`at_once`), so that the next sequence to be admitted belongs to another tenant. Decodes count
  // when the step is sent.
  void Charge(Sequence* sequence, uint64_t n_tokens, bool at_once);
  // Begins the planning of a step: fixes the tenants' order by their service so far.
  void BeginTurn();
  // Running -> waiting: frees its slot and its unshared blocks at once.
  void Preempt(Sequence* sequence);
  // Loading, waiting or running -> ended: removes it; only its rows in flight still refer to it.
  void End(Sequence* sequence);
  // Appends a sampled token to the sequence.
  void AppendToken(Sequence* sequence, int32_t token);
  // Ends the sequences of a call that has not begun and returns them. `one`: one of them.
  std::vector<std::shared_ptr<Sequence>> EndCall(const Sequence& one);
  // Ends the sequences of calls that have not begun. Returns them in order of service.
  std::vector<std::shared_ptr<Sequence>> EndNotBegun();
  // Ends all sequences and drops all steps in flight. Returns the sequences in order of service.
  std::vector<std::shared_ptr<Sequence>> EndAll();
  // Removes the sequences, so that they can go on elsewhere; returns them in order of service.
  // Suspects stay, unless `with_suspects`. REQUIRES: no step is in flight.
  std::vector<std::unique_ptr<SequenceRequest>> TakeOut(bool with_suspects);

  // The pipeline is lost: takes back the steps in flight. Every running sequence is again where the
  // last result left it; one that had no result, or lacks blocks for that, waits. Returns the
  // sequence to blame, which the caller must end: the one on trial, if it had a row in flight.
  // Null: none.
  std::shared_ptr<Sequence> Interrupt();
  // The stages know no sequence. kv_kept: their blocks hold what the steps up to the last result
  // have written, and running sequences go on. If not, or if there are suspects, every sequence
  // waits. Step numbers begin at 1 in each epoch.
  void BeginEpoch(uint64_t epoch, bool kv_kept);
  uint64_t epoch() const { return epoch_; }
  // The number of a step in its epoch, for plans and results. REQUIRES: a step of this epoch.
  uint64_t NumberInEpoch(uint64_t step) const { return step - steps_before_epoch_; }

  // A sequence that was in flight in two losses in a row is a suspect. Suspects run alone, one
  // after the other: either the next loss finds the culprit, or the sequence is acquitted.
  // The suspect whose turn it is. Null: none, everyone may run.
  Sequence* on_trial() const { return suspects_.empty() ? nullptr : suspects_.front().get(); }
  bool IsSuspect(const Sequence& sequence) const;
  // Acquits the sequence on trial when it has passed all positions that were in flight in the
  // losses.
  void SettleTrial();

  // Slots whose sequence has left, for the next plan to release.
  std::vector<uint32_t> TakeReleases();

  const std::deque<InFlightStep>& in_flight() const { return in_flight_; }
  void PushInFlight(InFlightStep step);
  // Removes the oldest step and its rows from their sequences' counts. REQUIRES: a step is in
  // flight.
  InFlightStep PopInFlight();
  double InFlightMs() const;

  // Nothing can be computed: all sequences load, if there are any.
  bool is_idle() const { return running_.empty() && waiting_.empty(); }
  // There is something to tell the stages, even in a plan without rows: a slot is free, blocks are
  // to be saved, a fetch to be forgotten.
  bool has_news() const { return !releases_.empty() || kv_.has_saves() || loads_.has_forgotten(); }

  uint64_t n_steps() const { return n_steps_; }
  // Progress of the pipeline in tokens. Each step counts its tokens, but at least break_even_rows:
  // reading the weights takes as long as computing that many rows. Waiting is measured on this
  // clock instead of wall time, so that the scheduler's decisions are reproducible.
  uint64_t clock() const { return clock_; }
  uint64_t n_preemptions() const { return n_preemptions_; }
  // Preemptions for a tenant that waited below its share; n_preemptions counts them too.
  uint64_t n_share_preemptions() const { return n_share_preemptions_; }
  void CountSharePreemption() { ++n_share_preemptions_; }
  uint64_t n_generated_tokens() const { return n_generated_tokens_; }
  uint64_t n_prompt_tokens() const { return n_prompt_tokens_; }
  uint64_t n_prefix_queries() const { return n_prefix_queries_; }
  uint64_t n_prefix_hits() const { return n_prefix_hits_; }
  uint64_t n_stored_hits() const { return n_stored_hits_; }

  // Recounts everything from the sequences; O(blocks + sequences).
  void CheckConsistency() const;

 private:
  // Lets a new sequence wait for the first choice of its request. False: it is to load or wait.
  bool Follow(Sequence* sequence);
  void AddFollower(SequenceId leader, Sequence* sequence);
  // They follow no more, and wait outside of the queue.
  std::vector<Sequence*> TakeFollowers(SequenceId leader);
  // The leader has its first token.
  void ReleaseFollowers(const Sequence& leader);
  // A follower ends.
  void LeaveLeader(Sequence* sequence);
  // The leader ends without a token: the next one leads.
  void ReplaceLeader(const Sequence& leader);
  // Lets a new sequence load, if that is worth it. False: it is to be queued.
  bool Load(Sequence* sequence, bool has_twin);
  // Tokens that the sequence need not compute now: the device has them, or the stages hold them.
  uint32_t NAvailable(const Sequence& sequence) const;
  // Loading -> waiting. All have the same prompt.
  void QueueLoaded(const std::vector<Sequence*>& loaded);
  // Adds it to the queue, with an estimate of its prefill tokens.
  void Queue(Sequence* sequence, bool has_twin = false);
  // `keep`: its blocks may be adopted.
  void Vacate(Sequence* sequence, bool keep = true);
  void StopRestore(Sequence* sequence);
  // Removes all steps in flight, as if they had not been planned.
  void TakeBackInFlight();
  // The steps after `step` never happened. first_start: the first position of each sequence in
  // these steps.
  void TakeBackRows(uint64_t step, const absl::flat_hash_map<Sequence*, uint32_t>& first_start);
  // Running -> waiting, without counting a preemption. `keep`: as for Vacate.
  void LetWait(Sequence* sequence, bool keep);
  // Makes it a suspect, if it was in flight in two losses.
  void JudgeLosses(Sequence* sequence);
  // Ends the sequences in order of service, and returns them in this order.
  std::vector<std::shared_ptr<Sequence>> EndEach(std::vector<std::shared_ptr<Sequence>> sequences);
  void CheckSequence(const Sequence& sequence, uint32_t n_rows, uint32_t n_samples) const;

  const SchedulerConfig config_;
  KvBlocks kv_;
  absl::flat_hash_map<SequenceId, std::shared_ptr<Sequence>> sequences_;  // without ended ones
  Tenants tenants_;
  WaitingQueue waiting_;
  KvLoads loads_;
  std::optional<SequenceId> leader_;  // the last sequence that was added and follows nobody
  absl::flat_hash_map<SequenceId, std::vector<Sequence*>> followers_;  // by leader; not empty
  std::vector<Sequence*> restoring_;  // running, with restores; in order of admission
  RunningSet running_;
  std::vector<uint32_t> free_slots_;
  std::vector<uint32_t> releases_;
  std::deque<InFlightStep> in_flight_;              // oldest first
  std::deque<std::shared_ptr<Sequence>> suspects_;  // in order of service; none of them has ended
  uint64_t epoch_;
  uint64_t steps_before_epoch_ = 0;
  std::chrono::steady_clock::time_point busy_since_;
  std::chrono::steady_clock::duration busy_{};
  uint64_t next_arrival_ = 0;
  uint64_t n_steps_ = 0;
  uint64_t clock_ = 0;
  uint64_t n_preemptions_ = 0;
  uint64_t n_share_preemptions_ = 0;
  uint64_t n_generated_tokens_ = 0;
  uint64_t n_prompt_tokens_ = 0;
  uint64_t n_prefix_queries_ = 0, n_prefix_hits_ = 0, n_stored_hits_ = 0;
};

}  // namespace stagecoach::router
