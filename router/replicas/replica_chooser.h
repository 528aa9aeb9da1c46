// Decides which of several pipelines with the same model gets a request.
//
// The replica where the prefill would end first gets it. What counts is the sum of three numbers of
// tokens: those that the replica still has to prefill, those of the prompt that its prefix cache
// lacks, and a share for each of its sequences. So requests that begin alike meet at one replica,
// and a conversation stays where it began, until that replica is busier by more than the prefix is
// worth. The idea is that of Preble (Srivatsa et al. 2024, "Preble: Efficient Distributed Prompt
// Scheduling for LLM Serving"), with counts of tokens in place of measured times, so that the same
// calls give the same choices. Ties go to the replica whose cache was given least, then to the
// first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "router/replicas/prefix_index.h"
#include "router/scheduler/scheduler.h"

namespace stagecoach::router {

// Not thread-safe.
class ReplicaChooser {
 public:
  // What a sequence counts as long as it lives, in tokens to prefill.
  static constexpr uint64_t kSequenceTokens = 64;

  // One configuration per replica; all are open.
  explicit ReplicaChooser(const std::vector<SchedulerConfig>& configs);

  // Adds a closed replica behind the others, or removes the last one.
  void Add(const SchedulerConfig& config);
  void RemoveLast() { replicas_.pop_back(); }

  struct Choice {
    size_t replica = 0;
    uint64_t n_to_prefill = 0;  // tokens
  };
  // Chooses for n requests with the prompt of `request`, and counts them as sequences of the
  // replica. Only the first of them has something to prefill.
  Choice Choose(const SequenceRequest& request, size_t n);
  // One of a replica's sequences has computed these tokens.
  void Prefilled(size_t replica, uint64_t n_tokens) { replicas_[replica].n_to_prefill -= n_tokens; }
  // A sequence has left the replica.
  void Left(size_t replica) { --replicas_[replica].n_sequences; }

  // A replica whose pipeline is lost gets requests only if none works, and has an empty cache.
  void SetState(size_t replica, PipelineState state);
  PipelineState state(size_t replica) const { return replicas_[replica].state; }
  // A replica with a stalled stage gets requests only if no other works.
  void SetStalled(size_t replica, bool stalled) { replicas_[replica].is_stalled = stalled; }

  enum class Use : uint8_t {
    kOpen,
    kDraining,  // gets requests only if all others are lost for good
    kClosed,    // gets no requests
  };
  void SetUse(size_t replica, Use use) { replicas_[replica].use = use; }
  Use use(size_t replica) const { return replicas_[replica].use; }

  // Whether its sequences would better go on elsewhere: it is lost and another one works, or it is
  // lost for good and another one is not.
  bool ShouldLeave(size_t replica) const;
  // Whether an open one besides this one works, or at least will if its lost stage is replaced.
  bool HasOtherThatWorks(size_t replica) const { return HasOther(replica, kLostRank); }
  bool HasOtherLeft(size_t replica) const { return HasOther(replica, kLostRank + 1); }
  uint64_t n_sequences(size_t replica) const { return replicas_[replica].n_sequences; }

 private:
  struct Replica {
    bool has_cache;
    PrefixIndex index;
    Use use = Use::kOpen;
    PipelineState state = PipelineState::kWorks;
    bool is_stalled = false;
    uint64_t n_to_prefill = 0;  // tokens
    uint64_t n_sequences = 0;
  };
  // A replica is chosen among those of the lowest rank. Those of a rank below kLostRank work.
  static constexpr int kLostRank = 2, kGoneRank = 4;
  static int RankOf(const Replica& replica);
  // Another one with a rank below this one.
  bool HasOther(size_t replica, int rank) const;

  std::vector<Replica> replicas_;
};

}  // namespace stagecoach::router
