// Memory that a model needs on N stages of one kind of GPU, and its estimated speed there. It is
// arithmetic only: nothing is loaded or started.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/check/model_report.h"
#include "cli/plan/gpu_table.h"
#include "cli/plan/stage_work.h"
#include "common/kv_block.h"
#include "common/model/model_spec.h"
#include "stagecoach/v1/load.pb.h"

namespace stagecoach::plan {

struct PlanOptions {
  Gpu gpu;
  double memory_fraction = 0.9;
  int32_t max_batched_tokens = 8192;
  int32_t max_sequences = 0;     // that run at once; 0: the router's default
  int32_t context_tokens = 0;    // per sequence; 0: the model's context length
  int32_t prompt_tokens = 0;     // of them, less than all; 0: prompts take no time
  bool saves_states = true;      // the prefix cache keeps recurrent states
  uint64_t kv_memory_bytes = 0;  // per stage; 0: all memory that is left
  v1::HiddenDType hidden_dtype = v1::HIDDEN_DTYPE_FLOAT32;
};

struct StagePlan {
  check::StageFacts facts;
  // Scratch memory of the largest step, the CUDA runtime, workspaces, and memory that stays free.
  uint64_t step_bytes = 0;
  int64_t kv_bytes = 0;               // left for the KV cache; negative: missing bytes
  std::vector<uint64_t> block_bytes;  // [KV group]; 0: the stage has no layer of it
  StageWork work;
};

struct ServingPlan {
  PlanOptions options;  // with defaults filled in
  std::vector<StagePlan> stages;
  size_t tightest = 0;            // the stage that limits the KV cache
  int64_t n_sequences = 0;        // of context_tokens each, at once; 0: does not fit
  int64_t n_kv_blocks = 0;        // as in the server's ready line
  int32_t n_batch = 0;            // batch size for which batch_tokens_per_s holds
  double one_ms_a_token = 0;      // ms per token of a single request
  double batch_tokens_per_s = 0;  // generated; their prompts are computed in the same time
  double prompt_tokens_per_s = 0;

  bool fits() const { return n_sequences > 0; }
  int64_t n_kv_tokens() const { return n_kv_blocks * kKvBlockTokens; }
};

// The KV cache is sized as a router does for max_sequences and steps of max_batched_tokens. Times
// of steps are those of step_time.h, and a hop between stages. The slowest stage sets the pace of a
// full pipeline. Prompts are computed in steps of max_batched_tokens. `facts` must come from
// CheckModel for the same number of stages.
ServingPlan PlanServing(const ModelSpec& spec, const check::ModelFacts& facts,
                        const PlanOptions& options);

// Text without a trailing line break.
std::string ToText(const ServingPlan& plan, const check::ModelFacts& facts);
boost::json::object ToJson(const ServingPlan& plan);

}  // namespace stagecoach::plan
