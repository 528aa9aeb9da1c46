// Brings a pipeline up: Describe, Load and Join on all workers.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/dtype.h"
#include "common/model/model_spec.h"
#include "common/rpc/internal_access.h"
#include "router/sizing/kv_sizing.h"
#include "router/sizing/layer_split.h"
#include "router/sizing/step_limits.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

struct PipelineOptions {
  std::string model_dir;               // on the workers' machines
  std::string adapter_dir;             // there too: a LoRA adapter to merge; empty: none
  std::vector<std::string> addresses;  // by stage
  InternalAccess access;               // to all of them
  std::optional<DType> dtype;          // absent: as stored
  bool dummy_weights = false;
  StepLimits limits;
  int32_t max_model_len = 0;  // tokens; 0: the model's own, lowered to what KV memory holds
  int32_t max_logprobs = 20;
  uint64_t kv_memory_bytes = 0;       // by stage; 0: the workers decide
  double memory_fraction = 0;         // of a GPU's memory; 0: the workers decide
  std::vector<uint32_t> layer_split;  // layers by stage; empty: balanced
  v1::TokenTable token_table;         // for the last stage's grammars; empty: none
  bool terminal = false;              // standard error is one: show a progress bar
  // A load that does not get on for so long is given up.
  std::chrono::steady_clock::duration load_stall_limit = std::chrono::seconds(120);
};

struct PipelineStage {
  std::string address;
  std::string device;  // "cpu: AMD EPYC ..., AVX2"
  LayerRange layers;
  // What the largest step took at the load.
  std::chrono::duration<double, std::milli> largest_step{0};
};

struct Pipeline {
  v1::Lease lease;  // of all its workers
  std::vector<PipelineStage> stages;
  bool on_gpus = false;
  StepLimits limits;  // with defaults
  KvPlan kv;
};

// Takes all workers, from another router too if one has them, and loads them. Each phase runs on
// all workers at once. Fails with the first phase that fails anywhere: every line of the message
// names a stage, its address and the cause. Blocks for as long as loading takes.
absl::StatusOr<Pipeline> SetUpPipeline(const ModelSpec& spec, PipelineOptions options);

}  // namespace stagecoach::router
