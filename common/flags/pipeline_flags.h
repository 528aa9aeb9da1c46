// Flags of the pipeline behind the front end: the model, its memory, scheduling, stalls, and what
// router and workers report.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/dtype.h"
#include "common/flags/observation_flags.h"

namespace CLI {
class Option;
}  // namespace CLI

namespace stagecoach {

class FlagTable;

// Limits of a step.
struct StepLimits {
  int32_t max_batched_tokens = 0;  // 0 (also in the next two fields): see router/sizing
  int32_t max_sequences = 0;       // sequences that hold KV at the same time; more wait
  int32_t max_prefill_chunk = 0;   // tokens of one sequence per step; at most max_batched_tokens
  bool operator==(const StepLimits&) const = default;
};

// How the model is loaded into the workers.
struct LoadFlags {
  std::optional<DType> dtype;  // absent: as the checkpoint stores it
  bool dummy_weights = false;
  // A LoRA adapter to merge, on the workers' machines; empty: none.
  std::string adapter_dir;
  std::vector<uint32_t> layer_split;  // layers per stage; empty: balanced
  StepLimits limits;
  int32_t max_model_len = 0;  // tokens; 0: the model's limit, or less if KV memory is short
  int32_t max_logprobs = 20;
  uint64_t kv_memory_bytes = 0;  // per stage; 0: each worker takes its free memory
  double memory_fraction = 0.9;  // of a GPU's memory
  // A load that makes no progress for this long is aborted.
  std::chrono::seconds load_stall_limit{120};
  bool operator==(const LoadFlags&) const = default;
};

struct SchedulerFlags {
  int32_t max_waiting = 4096;  // sequences not yet admitted; more are RESOURCE_EXHAUSTED
  // Prompt tokens of these sequences, counted per choice. More is RESOURCE_EXHAUSTED, unless
  // nothing else waits.
  uint64_t max_waiting_tokens = 16 << 20;
  bool plan_ahead = true;    // false: one microbatch in flight
  bool prefix_cache = true;  // sequences with the same prefix share KV blocks
  // Fault injection: preempts the youngest decoding sequence every N steps (0: never).
  int32_t preempt_every = 0;
  bool operator==(const SchedulerFlags&) const = default;
};

struct PipelineFlags {
  LoadFlags load;
  std::string chat_template;  // a Jinja file; empty: the checkpoint's template
  SchedulerFlags scheduler;
  uint32_t microbatches = 0;             // that compute at the same time; 0: one per stage
  std::chrono::seconds stall_limit{10};  // a stage without progress for this long ends the pipeline
  double trace_sample_ratio = 1;  // share of requests to trace, if the client does not decide
  uint64_t request_memory_bytes = 256 << 20;  // for all requests together
  ObservationFlags observation;
  bool operator==(const PipelineFlags&) const = default;
};

void DeclarePipelineFlags(FlagTable& table, PipelineFlags& flags);

// --dtype, also for commands that only look at a model.
CLI::Option* DeclareDType(FlagTable& table, std::optional<DType>& dtype);

}  // namespace stagecoach
