// Decides what every step of the pipeline computes: continuous batching, chunked prefill, paged KV,
// preemption by recompute, weighted fair shares between tenants, priorities within a tenant,
// plan-ahead.
//
// One thread owns all state and blocks on one mailbox (Submit, Cancel, StepResult, StageDown, ...).
// It never polls and takes no lock except the mailbox's. Public methods post to the mailbox; any
// thread may call them.
//
// Plan-ahead: with S stages, up to S + 1 microbatches are in flight, one computing on each stage
// and one planned; one more while prompts fill the steps. A sequence decodes once per turn of the
// pipeline. Its next decode may be planned before its token is known, since the last stage sends
// sampled tokens to stage 0 directly. If the sequence then turns out to have ended, the row is
// dropped when its result comes. Freed blocks are reused at once: every stage executes plans in
// order, so a write of an earlier step always comes before a write of a later one.
//
// Prefill chunks have the size that keeps all stages busy for the least time (policies.h). They
// shrink as KV gets short (Guo et al. 2025, "gLLM: Global Balanced Pipeline Parallelism Systems
// with Token Throttling").
#pragma once

#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flags/pipeline_flags.h"
#include "common/key_window.h"
#include "common/kv_beside.h"
#include "router/scheduler/kv_events.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

class StageClient;

// Rows per step at which a GEMM takes as long as reading its weights: achieved GEMM peak over
// achieved memory bandwidth. Measured on an H200 in bfloat16: 621 TFLOP/s and 3.15 TB/s; other GPUs
// of its generation are similar. The ratio of a CPU is lower, but a CPU step also has a fixed cost.
inline constexpr int32_t kGpuBreakEvenRows = 200;
inline constexpr int32_t kCpuBreakEvenRows = 32;

struct SchedulerConfig : SchedulerFlags {
  // Microbatches that compute at the same time: one per stage, or fewer if stages share their
  // cores.
  int32_t n_microbatches = 1;
  int32_t max_sequences = 256;       // slots: sequences that hold KV at the same time
  int32_t max_batched_tokens = 512;  // per step
  int32_t max_prefill_chunk = 512;   // tokens of one sequence in one step
  // Rows per step at which a stage turns compute-bound: the GEMM takes as long as reading its
  // weights.
  int32_t break_even_rows = kCpuBreakEvenRows;
  int32_t max_model_len = 2048;  // tokens
  struct KvGroup {
    KeyWindow window;
    uint64_t n_blocks = 0;
  };
  std::vector<KvGroup> kv_groups;
  // The model has recurrent layers. Stages keep a state for each slot, and further ones that plans
  // save and later sequences begin with: those with the numbers [max_sequences, n_states).
  bool is_recurrent = false;
  uint64_t n_states = 0;

  uint32_t n_saved_states() const {
    const auto n_slots = static_cast<uint64_t>(max_sequences);
    return static_cast<uint32_t>(n_states > n_slots ? n_states - n_slots : 0);
  }
  // What decides the bits of a KV block besides its tokens: names model, numerics, dtype and
  // adapter. Servers with the same scope share blocks through a store (--kv-store); this needs
  // prefix_cache. Empty: there is no store.
  std::string kv_scope;
  // A prompt of which the prefix cache lacks fewer tokens than this is computed without asking the
  // store.
  int32_t kv_fetch_min_tokens = 64;
  // The most blocks that a plan restores beside its rows; stages support kMostBlocksBeside.
  int32_t kv_blocks_beside = kMostBlocksBeside;
  // Who wants to know what the prefix cache holds; this needs prefix_cache.
  KvEventOptions kv_events;
  uint64_t epoch = 1;
};

struct SchedulerSnapshot {
  int32_t running = 0;
  int32_t waiting = 0;  // also those that load
  int32_t loading = 0;  // wait for KV blocks from the store, or for their request's first choice
  int32_t waiting_high = 0;  // waiting with a priority below 0
  int32_t waiting_low = 0;   // waiting with a priority above 0
  int32_t in_flight = 0;     // microbatches
  uint64_t steps = 0;
  uint64_t preemptions = 0;
  uint64_t share_preemptions = 0;  // part of preemptions: for a tenant that waited below its share
  uint64_t evicted = 0;  // sequences evicted from a full queue to make room for another tenant
  uint64_t prompt_tokens = 0;  // computed, without those from prefix cache and KV store
  // Prompt tokens of admitted sequences, and those of them that the prefix cache had.
  uint64_t prefix_queries = 0, prefix_hits = 0;
  uint64_t kv_store_hits = 0;  // prompt tokens that the cache lacked and the KV store had
  uint64_t kv_saves = 0;       // blocks that the stages were told to save to the store
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
    uint64_t computed_tokens = 0;       // prefill and decode
  };
  std::vector<Tenant> tenants;  // every tenant since the start
  bool down = false;
};

enum class PipelineState : uint8_t {
  kWorks,
  kLost,  // until its lost stage is replaced
  kGone,  // lost for good
};

// Lets sequences go on at another pipeline while their own is lost. Each runs on the scheduler's
// thread and must not block; all may be null.
struct SchedulerHooks {
  std::function<void(PipelineState)> on_state;  // it has changed; kWorks at first
  // Another pipeline works, or is at least not lost for good if this one is.
  std::function<bool()> may_move;
  // The scheduler forgets these sequences. Those that it had queued have a past, and come in their
  // order of service. Others come as they were submitted.
  std::function<void(std::vector<std::unique_ptr<SequenceRequest>>)> move;
};

class Scheduler {
 public:
  // `client` outlives the scheduler. Starts the client and the thread.
  static absl::StatusOr<std::unique_ptr<Scheduler>> Start(const SchedulerConfig& config,
                                                          StageClient* client,
                                                          SchedulerHooks hooks = {});
  virtual ~Scheduler() = default;  // calls Stop
  // Sequences that still run, or that are submitted before this returns, get UNAVAILABLE. Submit
  // and Cancel may still be called later, for example by callees of a sink; they then have no
  // effect. Drain and Snapshot must not be called any more. Not thread-safe.
  virtual void Stop() = 0;

  // Admits to the queue either all of `requests` (the n choices of one request) or none. Errors
  // come through the sink's OnError: RESOURCE_EXHAUSTED, UNAVAILABLE, and INVALID_ARGUMENT if the
  // request never fits. RESOURCE_EXHAUSTED may also come later, to a waiting call of a tenant
  // beyond its share of a full queue.
  virtual void Submit(std::vector<std::unique_ptr<SequenceRequest>> requests) = 0;
  // Drops a sequence in any state; its blocks are free before the next step is planned. The sink
  // gets no more calls.
  virtual void Cancel(SequenceId id) = 0;
  // From now on, new sequences get UNAVAILABLE. So do sequences that still wait after the next
  // plan, unless their call has an admitted sequence. The future becomes ready when no sequence is
  // left.
  virtual std::future<void> Drain() = 0;
  // Calls `done` on the scheduler's thread. A scheduler whose pipeline is lost looks for another
  // one at the same time (SchedulerHooks).
  virtual void AskSnapshot(std::function<void(SchedulerSnapshot)> done) = 0;
  std::future<SchedulerSnapshot> Snapshot();
};

}  // namespace stagecoach::router
