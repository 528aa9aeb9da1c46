// What a model takes on N stages of a kind of GPU, and how fast it may be there, from arithmetic
// alone: nothing is loaded or started.
#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/check/model_report.h"
#include "cli/plan/gpu_table.h"
#include "common/kv_block.h"
#include "common/model/model_spec.h"

namespace stagecoach::plan {

struct PlanOptions {
  Gpu gpu;
  double memory_fraction = 0.9;
  int32_t max_batched_tokens = 8192;
  int32_t max_sequences = 0;     // that run at once; 0: as a router has it
  int32_t context_tokens = 0;    // of a sequence; 0: the model's
  uint64_t kv_memory_bytes = 0;  // of each stage's KV cache; 0: what is left
};

struct StagePlan {
  check::StageFacts facts;
  uint64_t step_bytes = 0;  // scratch of the largest step, CUDA, workspaces, what stays free
  int64_t kv_bytes = 0;     // left for the KV cache; negative: so much is lacking
  std::vector<uint64_t> block_bytes;  // [KV group]; 0: no layer here
  uint64_t bytes_a_sequence = 0;      // of the KV cache, at the context asked for
  uint64_t read_by_one = 0;           // weights that one row is multiplied with
  uint64_t read_by_many = 0;          // weights that a large batch is: all experts
  double flops_a_token = 0;
};

struct ServingPlan {
  PlanOptions options;  // with its context
  std::vector<StagePlan> stages;
  size_t tightest = 0;        // the stage that bounds the KV cache
  int64_t n_sequences = 0;    // of the whole context, at once; 0: does not fit
  int64_t n_kv_blocks = 0;    // as in the server's ready line
  int32_t n_batch = 0;        // sequences that `batch_tokens_per_s` is for
  double one_ms_a_token = 0;  // a single request
  double batch_tokens_per_s = 0;
  double prompt_tokens_per_s = 0;

  bool fits() const { return n_sequences > 0; }
  int64_t n_kv_tokens() const { return n_kv_blocks * kKvBlockTokens; }
};

// The KV cache is what a router makes of it with max_sequences and steps of max_batched_tokens.
// Times are those of reading weights and KV once and of the products, at shares of the data sheet's
// peaks that this server has been measured to reach, and of a hop between stages; whichever stage
// takes longest sets the pace of a full pipeline. `facts` as CheckModel gives them for the stages.
ServingPlan PlanServing(const ModelSpec& spec, const check::ModelFacts& facts,
                        const PlanOptions& options);

// For people; no line break at the end.
std::string ToText(const ServingPlan& plan, const check::ModelFacts& facts);
boost::json::object ToJson(const ServingPlan& plan);

}  // namespace stagecoach::plan
