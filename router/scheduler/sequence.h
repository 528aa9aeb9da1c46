// All state that the scheduler keeps of one sequence, from submission to its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

struct Tenant;

struct Sequence : std::enable_shared_from_this<Sequence> {
  enum class State : uint8_t {
    kLoading,  // before it enters the queue: waits for KV blocks from the store, or for its leader
    kWaiting,  // in the queue; rows from before a preemption may still be in flight
    kRunning,  // has a slot and blocks
    kEnded,    // rows planned before the end may still be in flight
  };

  Sequence(std::unique_ptr<SequenceRequest> request, Tenant* tenant, uint64_t arrival,
           std::chrono::steady_clock::time_point submitted);
  // The request, with what was generated since as its past. The sequence is of no use afterwards.
  std::unique_ptr<SequenceRequest> TakeRequest();

  SequenceId id() const { return request->id; }
  // The prompt, then the generated tokens.
  std::span<const int32_t> tokens() const { return prompt != nullptr ? *prompt : own_tokens; }
  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens().size()); }
  uint32_t n_generated() const { return n_tokens() - n_prompt; }
  bool running() const { return state == State::kRunning; }
  // All registered tokens are planned; from here on, each step computes one sampled token.
  bool decoding() const { return next_position >= n_registered; }

  // Replaces the prompt that all choices share by the sequence's own tokens. Called at admission,
  // or with a past.
  void OwnTokens();

  std::unique_ptr<SequenceRequest> request;
  Tenant* const tenant;
  const uint64_t arrival;
  const std::chrono::steady_clock::time_point submitted;
  State state = State::kWaiting;
  bool was_admitted = false;
  uint32_t n_admissions = 0;  // by this scheduler

  SharedTokens prompt;              // until OwnTokens
  std::vector<int32_t> own_tokens;  // afterwards
  const uint32_t n_prompt;
  uint32_t next_prompt_logprob = 1;  // prompt token whose logprobs the sink gets next
  SequenceTimes times;

  // Tokens that the prefill computes: all known tokens, without those adopted from the prefix
  // cache. In the queue: the value when the sequence entered it, plus tokens that came since.
  uint32_t n_to_prefill = 0;

  // The first choice of its request, while that has no token. See state_followers.cpp.
  std::optional<SequenceId> leader;
  uint64_t fetch = 0;  // that brings it blocks from the KV store, before its admission; 0: none
  // It has lost blocks, or could not load before: it is to load when its turn comes.
  bool loads_in_turn = false;
  bool has_reloaded = false;  // because blocks were lost while it waited
  uint32_t n_available = 0;   // tokens that need not be computed, when it entered the queue

  uint32_t n_in_flight = 0;  // rows of steps whose result has not come
  // Rows in flight that sample, so their tokens are unknown; at most 2.
  uint32_t n_in_flight_samples = 0;

  // Pipelines lost in a row with a row of this sequence in flight, without much progress between.
  uint32_t n_losses = 0;
  uint32_t n_generated_at_loss = 0;  // at the last of these

  // While running.
  uint32_t slot = 0;
  uint32_t n_registered = 0;   // tokens sent to the stages at registration
  uint64_t first_step = 0;     // the step that registered it
  bool to_register = false;    // the stages do not know it; its next row registers it
  uint32_t next_position = 0;  // positions below are planned
  uint64_t last_step = 0;      // last step with a row of this sequence
  BlockTables tables;          // per KV group; they cover positions [0, next_position)
  RememberedPrefix prefix;     // remembered part of the tables
  // What `fetch` has brought and its tables have places for, but no plan restores yet. Absent once
  // it has a row, which reads all of it.
  std::optional<KvRestores> restores;
  // The saved states of recurrent layers, and the one that the sequence begins with.
  StateMarks states;
  std::optional<uint32_t> from_state;
};

// The order of service of one tenant's sequences: priority, then arrival.
struct ServedFirst {
  bool operator()(const Sequence* a, const Sequence* b) const {
    if (a->request->priority != b->request->priority) {
      return a->request->priority < b->request->priority;
    }
    return a->arrival < b->arrival;
  }
};

}  // namespace stagecoach::router
