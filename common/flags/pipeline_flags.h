// Flags of the pipeline behind the front end: the model, its memory, scheduling, stalls, and what
// router and workers report.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "common/config/load_config.h"
#include "common/flags/observation_flags.h"
#include "stagecoach/v1/load.pb.h"

namespace CLI {
class Option;
}  // namespace CLI

namespace stagecoach {

class FlagTable;

// The configuration without flags.
v1::LoadConfig DefaultLoadConfig();

// Whether the devices of stages are measured before layers are split between them.
enum class MeasureStages : uint8_t { kAuto, kOn, kOff };

// How the model is loaded into the workers.
struct LoadFlags {
  v1::LoadConfig config = DefaultLoadConfig();
  std::vector<uint32_t> layer_split;                    // layers per stage; empty: balanced
  MeasureStages measure_stages = MeasureStages::kAuto;  // without layer_split
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
  uint32_t replicas = 1;      // pipelines with the same model
  std::string chat_template;  // a Jinja file; empty: the checkpoint's template
  SchedulerFlags scheduler;
  uint32_t microbatches = 0;             // that compute at the same time; 0: one per stage
  std::chrono::seconds stall_limit{10};  // a stage without progress for this long is lost
  // Time for a lost stage's replacement to answer; 0: a lost stage ends the pipeline.
  std::chrono::seconds recovery_limit{60};
  double trace_sample_ratio = 1;  // share of requests to trace, if the client does not decide
  uint64_t request_memory_bytes = 256 << 20;  // for all requests together
  ObservationFlags observation;
  bool operator==(const PipelineFlags&) const = default;
};

void DeclarePipelineFlags(FlagTable& table, PipelineFlags& flags);

// --dtype, --quantize, --kv-dtype and --hidden-dtype, also for commands that only look at a model.
CLI::Option* DeclareDType(FlagTable& table, v1::LoadConfig& config);
CLI::Option* DeclareQuantize(FlagTable& table, v1::LoadConfig& config);
CLI::Option* DeclareKvDType(FlagTable& table, v1::LoadConfig& config);
CLI::Option* DeclareHiddenDType(FlagTable& table, v1::LoadConfig& config);

}  // namespace stagecoach
