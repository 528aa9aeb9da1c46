// Everything the scheduler knows of one sequence, from submission to its end.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "router/scheduler/kv_blocks.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

struct Tenant;

struct Sequence : std::enable_shared_from_this<Sequence> {
  enum class State : uint8_t {
    kWaiting,  // in the queue; rows of before a preemption may still be in flight
    kRunning,  // has a slot and blocks
    kEnded,    // rows planned before the end may still be in flight
  };

  Sequence(std::unique_ptr<SequenceRequest> request, Tenant* tenant, uint64_t arrival,
           std::chrono::steady_clock::time_point submitted);

  SequenceId id() const { return request->id; }
  // The prompt, then what was generated.
  std::span<const int32_t> tokens() const { return prompt != nullptr ? *prompt : own_tokens; }
  uint32_t n_tokens() const { return static_cast<uint32_t>(tokens().size()); }
  uint32_t n_generated() const { return n_tokens() - n_prompt; }
  bool running() const { return state == State::kRunning; }
  // Every registered token is planned: from here on it computes one sampled token a step.
  bool decoding() const { return next_position >= n_registered; }

  // At its admission: its tokens are its own from here on, and not those of all choices.
  void OwnTokens();

  std::unique_ptr<SequenceRequest> request;
  Tenant* const tenant;
  const uint64_t arrival;
  const std::chrono::steady_clock::time_point submitted;
  State state = State::kWaiting;
  bool was_admitted = false;

  SharedTokens prompt;              // until OwnTokens
  std::vector<int32_t> own_tokens;  // afterwards
  const uint32_t n_prompt;
  uint32_t next_prompt_logprob = 1;  // prompt token whose logprobs the sink gets next
  SequenceTimes times;

  // Tokens that its prefill computes: those it has, but for what other sequences left behind. In
  // the queue as it was on entering it.
  uint32_t n_to_prefill = 0;

  uint32_t n_in_flight = 0;          // rows of steps whose result has not come
  uint32_t n_in_flight_samples = 0;  // of these, rows that sample: tokens not known yet, at most 2

  // While running.
  uint32_t slot = 0;
  uint32_t n_registered = 0;   // tokens the stages were given at registration
  uint32_t next_position = 0;  // positions below are planned
  uint64_t last_step = 0;      // that has a row of it
  BlockTables tables;          // by KV group; they cover positions [0, next_position)
  RememberedPrefix prefix;     // of the tables
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
