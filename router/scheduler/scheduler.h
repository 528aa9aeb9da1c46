// Decides what every step of the pipeline computes: continuous batching, chunked prefill, paged KV,
// preemption by recompute, shares between tenants, priorities within one, plan-ahead.
//
// One thread owns all state and blocks on one mailbox (Submit, Cancel, StepResult, StageDown, ...);
// it never polls and takes no lock but the mailbox's. Public methods post to the mailbox and may be
// called from any thread.
//
// Plan-ahead: with S stages up to S + 1 microbatches are in flight, one in compute on each stage
// and one planned, and one more while prompts fill the steps. A sequence decodes once per turn of
// the pipeline; its next decode may be planned before its token is known, since the last stage
// sends sampled tokens to stage 0 directly. A row planned for a sequence that then turns out to
// have ended is dropped when its result comes. Freed blocks are reused at once: every stage carries
// out plans in order, so a write of an earlier step always comes before one of a later step.
//
// Prefill comes in chunks that keep all stages at work for the least time (policies.h), fewer as KV
// gets short (Guo et al. 2025, "gLLM: Global Balanced Pipeline Parallelism Systems with Token
// Throttling").
#pragma once

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

class StageClient;

// The peak of products over the bandwidth of memory, as reached: 621 TFLOP/s and 3.15 TB/s on an
// H200 in bfloat16, others of its time alike. CPUs have fewer; but a step costs them some, too.
inline constexpr int32_t kGpuBreakEvenRows = 200;
inline constexpr int32_t kCpuBreakEvenRows = 32;

struct SchedulerConfig {
  // That compute at once: one a stage, or fewer where stages share their cores.
  int32_t n_microbatches = 1;
  int32_t max_sequences = 256;       // slots: sequences that hold KV at once
  int32_t max_batched_tokens = 512;  // a step
  int32_t max_prefill_chunk = 512;   // tokens of one sequence in one step
  // That a stage takes as long to multiply as to read the weights for: where products get
  // efficient.
  int32_t break_even_rows = kCpuBreakEvenRows;
  int32_t max_model_len = 2048;  // tokens
  int32_t max_waiting = 4096;    // sequences not yet admitted; one more is RESOURCE_EXHAUSTED
  // Of their prompts, those of all choices. More is RESOURCE_EXHAUSTED, unless nothing else waits.
  uint64_t max_waiting_tokens = 16 << 20;
  bool plan_ahead = true;    // off: one microbatch in flight
  bool prefix_cache = true;  // sequences that begin alike share KV blocks
  struct KvGroup {
    int32_t window = 0;  // tokens; 0: full attention
    uint64_t n_blocks = 0;
  };
  std::vector<KvGroup> kv_groups;
  uint64_t epoch = 1;
  // Testing: preempts the youngest running sequence every N steps (0: never).
  int32_t preempt_every = 0;
};

struct SchedulerSnapshot {
  int32_t running = 0;
  int32_t waiting = 0;
  int32_t waiting_high = 0;  // of those, with a priority below 0
  int32_t waiting_low = 0;   // above 0
  int32_t in_flight = 0;     // microbatches
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t share_preemptions = 0;  // of these, those for a tenant that waited below its share
  uint64_t evicted = 0;            // sequences sent out of a full queue for another tenant's
  uint64_t prompt_tokens = 0;      // computed
  // Of admitted prompts the tokens, and those that the prefix cache had.
  uint64_t prefix_queries = 0, prefix_hits = 0;
  bool prefix_cache = false;
  uint64_t generated_tokens = 0;
  double in_flight_ms = 0;  // time with at least one microbatch in flight
  struct KvGroup {
    int32_t window = 0;
    uint64_t total_blocks = 0;
    uint64_t free_blocks = 0;
  };
  std::vector<KvGroup> kv;
  struct Tenant {
    std::string name;
    uint32_t weight = 1;
    uint32_t running = 0, waiting = 0;  // sequences
    uint64_t computed_tokens = 0;       // prefilled and decoded
  };
  std::vector<Tenant> tenants;  // that have come since the start
  bool down = false;
};

class Scheduler {
 public:
  // `client` outlives the scheduler. Starts the client and the thread.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Start(const SchedulerConfig& config,
                                                          StageClient* client);
  virtual ~Scheduler() = default;  // stops
  // Sequences still running, or submitted before this returns, get UNAVAILABLE. Later calls of
  // Submit and Cancel have no effect: those whom sinks call may still make them. Drain and Snapshot
  // must not be called any more. Not thread-safe.
  virtual void Stop() = 0;

  // RESOURCE_EXHAUSTED and UNAVAILABLE come through the sink's OnError, and INVALID_ARGUMENT where
  // it never fits. RESOURCE_EXHAUSTED may also come later, to who waits beyond its tenant's share
  // of a full queue.
  // All of `requests` (the n choices of one request) are admitted to the queue, or none.
  virtual void Submit(std::vector<std::unique_ptr<SequenceRequest>> requests) = 0;
  // Drops a sequence wherever it is; its blocks are free before the next step is planned. The sink
  // hears no more.
  virtual void Cancel(SequenceId id) = 0;
  // From now on new sequences get UNAVAILABLE, and those that still wait after the next plan do,
  // unless one of their call was admitted; the future is ready when none is left.
  virtual std::future<void> Drain() = 0;
  virtual std::future<SchedulerSnapshot> Snapshot() = 0;
};

}  // namespace stagecoach::router
