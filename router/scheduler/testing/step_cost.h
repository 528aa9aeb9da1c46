// A model of a GPU stage's step time for pipeline_sim. It is not a measurement.
//
// Fit of the constants. All measurements used the shape of Mistral-7B in bfloat16 on H200s
// (tests/bench/results/cuda_steps.jsonl, cuda_serve.jsonl, nccl.jsonl), with one stage except for
// the hop.
// - weight_bytes_per_s, product_flops_per_s: steps of 1 to 64 decodes, and of 64 prompts of 128
//   tokens. A GEMM for which reading the weights takes as long as multiplying is slower than either
//   alone; the root of the sum of squares matches steps of 64, 128 and 256 rows within 4%.
// - kv_bytes_per_s: 128 and 256 decodes with 400 tokens each, and 256 decodes with 1,024 to 1,280
//   tokens.
// - attention_flops_per_s: one prompt of 8,192 tokens against two of 4,096, in one step.
// - router_s: time to first token for 8,192 tokens, minus the time of its step. A lower bound.
// - hop_s: one token of one sequence with 4 stages against 1; hop_s_a_row: transport_nccl_bench.
// - tiles: steps of one chunk of 256 to 2,048 rows in multiples of 128.
//
// The model is within 5% of all of these, except that 16 decodes are 5.5% too fast. A fixed time
// per step came out negligible. The model leaves out how much a waiting receive slows the kernels
// that run beside it: that is not a property of the schedule.
#pragma once

#include <cstdint>

#include "stagecoach/v1/step.pb.h"

namespace stagecoach::router {

struct ModelShape {
  int32_t n_layers = 32;
  double layer_parameters = 218'112'000;
  double head_parameters = 134'217'728;
  double attention_width = 4096;  // query heads * head size
  double kv_bytes = 4096;         // per token and layer
  double bytes_a_parameter = 2;
};

struct DeviceSpeed {
  double weight_bytes_per_s = 3.15e12;
  double kv_bytes_per_s = 4.2e12;
  double product_flops_per_s = 621e12;
  double attention_flops_per_s = 554e12;
  double hop_s = 40e-6;
  double hop_s_a_row = 0.5e-6;
  double router_s = 0.25e-3;  // router to stage or stage to router, one way
};

// The properties of a step that determine its time.
struct StepWork {
  int32_t n_rows = 0;
  int32_t n_sampled = 0;
  int32_t n_prefill = 0;   // rows that belong to chunks of several rows
  double chunk_pairs = 0;  // query-key pairs in chunks of several rows
  double decode_keys = 0;  // keys that single rows attend to
};

StepWork WorkOf(const v1::StepPlan& plan);

// Computes the seconds per step for a stage's layers and, on the last stage, the head.
class StageCost {
 public:
  // has_head: the stage is the last one.
  StageCost(const ModelShape& shape, const DeviceSpeed& speed, int32_t n_layers, bool has_head);

  double Seconds(const StepWork& work) const;
  // Seconds to send a step's hidden states to the next stage.
  double HopSeconds(const StepWork& work) const;

 private:
  double ProductSeconds(double n_parameters, int32_t n_rows) const;

  const ModelShape shape_;
  const DeviceSpeed speed_;
  int32_t n_layers_;
  bool has_head_;
};

}  // namespace stagecoach::router
