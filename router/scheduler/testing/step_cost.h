// How long a stage takes for a step: a model of a GPU for pipeline_sim, not a measurement.
//
// What was fitted to what: all of it measured with Mistral-7B's shape in bfloat16 on H200s
// (tests/bench/results/cuda_steps.jsonl, cuda_serve.jsonl, nccl.jsonl), at one stage but for the
// hop.
// - weight_bytes_per_s, product_flops_per_s: steps of 1 to 64 decodes, and of 64 prompts of 128. A
//   product that takes as long to read as to multiply takes longer than either; the root of the sum
//   of squares follows steps of 64, 128 and 256 rows within 4%.
// - kv_bytes_per_s: 128 and 256 decodes with 400 tokens each, and 256 with 1,024 to 1,280.
// - attention_flops_per_s: one prompt of 8,192 against two of 4,096, in one step.
// - router_s: the time to the first token of 8,192, less its step's. It is a lower bound.
// - hop_s: a token of one sequence at 4 stages against 1; hop_s_a_row: transport_nccl_bench.
// - tiles: steps of one chunk of 256 to 2,048 rows in multiples of 128.
// Within 5% of all of these, but 16 decodes are 5.5% too fast. A fixed time a step came out as
// nothing beside these. What a receive that waits costs the kernels beside it is left out: it is no
// property of the schedule.
#pragma once

#include <cstdint>

#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

struct ModelShape {
  int32_t n_layers = 32;
  double layer_parameters = 218'112'000;
  double head_parameters = 134'217'728;
  double attention_width = 4096;  // query heads * head size
  double kv_bytes = 4096;         // of a token in a layer
  double bytes_a_parameter = 2;
};

struct DeviceSpeed {
  double weight_bytes_per_s = 3.15e12;
  double kv_bytes_per_s = 4.2e12;
  double product_flops_per_s = 621e12;
  double attention_flops_per_s = 554e12;
  double hop_s = 40e-6;
  double hop_s_a_row = 0.5e-6;
  double router_s = 0.25e-3;  // between router and stages, one way
};

// What of a step the time depends on.
struct StepWork {
  int32_t n_rows = 0;
  int32_t n_sampled = 0;
  int32_t n_prefill = 0;   // of the rows, those of chunks
  double chunk_pairs = 0;  // of a query and a key before it, in chunks of several rows
  double decode_keys = 0;  // that single rows attend to
};

StepWork WorkOf(const v1::StepPlan& plan);

// Seconds that layers of a stage, and the head where it is the last, take for a step.
class StageCost {
 public:
  // REQUIRES: n_stages <= shape.n_layers. The first stages get the layers that are left over.
  StageCost(const ModelShape& shape, const DeviceSpeed& speed, int32_t n_stages, int32_t stage);

  double Seconds(const StepWork& work) const;
  // Hidden states of a step to the next stage.
  double HopSeconds(const StepWork& work) const;

 private:
  double ProductSeconds(double n_parameters, int32_t n_rows) const;

  const ModelShape shape_;
  const DeviceSpeed speed_;
  int32_t n_layers_;
  bool has_head_;
};

}  // namespace stagecoach::router
