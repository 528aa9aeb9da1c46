// Sets up a pipeline: Describe, Load, OfferLinks and Join on all workers.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flags/pipeline_flags.h"
#include "common/model/model_spec.h"
#include "common/rpc/internal_access.h"
#include "router/dispatch/lease.h"
#include "router/dispatch/recovery_times.h"
#include "router/sizing/kv_sizing.h"
#include "router/sizing/layer_split.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

struct PipelineOptions {
  std::string model_dir;               // on the workers' machines
  std::vector<std::string> addresses;  // per stage
  // Workers of the router's other pipelines. They may be on the same machines and share the memory.
  std::vector<std::string> other_addresses = {};
  InternalAccess access;  // access to all workers
  // Workers that were loaded for this holder keep what they hold.
  std::string lease_holder = NewLeaseHolder();
  LoadFlags flags;
  v1::TokenTable token_table;  // for the last stage's grammars; empty: none
  bool prefix_cache = true;
  bool terminal = false;  // standard error is a terminal: show a progress bar
};

struct PipelineStage {
  std::string address;
  std::string device;                       // "cpu: AMD EPYC ..., AVX2"
  std::map<std::string, uint64_t> weights;  // bytes by encoding
  // A replacement of the worker must have the same ones. Empty: unknown.
  std::string numerics, layers_id;
  LayerRange layers;
  // Duration of the largest step, measured during the load.
  std::chrono::duration<double, std::milli> largest_step{0};
  uint64_t kv_bytes = 0;  // of its KV cache
};

struct Pipeline {
  v1::Lease lease;  // holds all workers
  std::vector<PipelineStage> stages;
  bool on_gpus = false;
  v1::LoadConfig config;  // as the workers got it
  KvPlan kv;
  // What keys in the KV store depend on beside tokens: weights, numerics, dtypes; with hidden
  // states in bfloat16 also the split into stages. Empty: there is no store, or a stage does not
  // know it.
  std::string kv_scope;
};

// Takes all workers, also from another router, and loads them. Each phase runs on all workers in
// parallel. If a phase fails on any worker, the setup fails; each line of the message names a
// stage, its address and the cause. Blocks until loading ends, or until `stop`: CANCELLED.
absl::StatusOr<Pipeline> SetUpPipeline(const ModelSpec& spec, const PipelineOptions& options,
                                       const std::stop_token& stop = {});

struct RestoredPipeline {
  v1::Lease lease;  // the new one
  // Every stage has the KV cache that it had in the lost epoch, with what it computed.
  bool kv_kept = false;
};

// Joins the stages of `pipeline`, which SetUpPipeline returned, in an epoch above its lease's,
// after some were lost in `lost_epoch`. Waits up to `answer_limit` for each address to answer. A
// worker that still holds its layers keeps them; a new one at the address of a lost one loads them.
// The rest of `pipeline` still holds. `enter` hears of the phases. ABORTED: another router has a
// worker. CANCELLED after `stop`.
absl::StatusOr<RestoredPipeline> RestorePipeline(const ModelSpec& spec,
                                                 const PipelineOptions& options,
                                                 const Pipeline& pipeline, uint64_t lost_epoch,
                                                 std::chrono::seconds answer_limit,
                                                 const std::stop_token& stop,
                                                 const EnterPhase& enter);

}  // namespace stagecoach::router
