// Sets up a pipeline: Describe, Load, OfferLinks and Join on all workers.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flags/pipeline_flags.h"
#include "common/model/model_spec.h"
#include "common/rpc/internal_access.h"
#include "router/sizing/kv_sizing.h"
#include "router/sizing/layer_split.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

struct PipelineOptions {
  std::string model_dir;               // on the workers' machines
  std::vector<std::string> addresses;  // per stage
  InternalAccess access;               // access to all workers
  LoadFlags flags;
  v1::TokenTable token_table;  // for the last stage's grammars; empty: none
  bool terminal = false;       // standard error is a terminal: show a progress bar
};

struct PipelineStage {
  std::string address;
  std::string device;  // "cpu: AMD EPYC ..., AVX2"
  LayerRange layers;
  // Duration of the largest step, measured during the load.
  std::chrono::duration<double, std::milli> largest_step{0};
};

struct Pipeline {
  v1::Lease lease;  // holds all workers
  std::vector<PipelineStage> stages;
  bool on_gpus = false;
  v1::LoadConfig config;  // as the workers got it
  KvPlan kv;
};

// Takes all workers, also from another router, and loads them. Each phase runs on all workers in
// parallel. If a phase fails on any worker, the setup fails; each line of the message names a
// stage, its address and the cause. Blocks until loading ends.
absl::StatusOr<Pipeline> SetUpPipeline(const ModelSpec& spec, const PipelineOptions& options);

}  // namespace stagecoach::router
