// Assigns layers to stages whose devices differ in speed or memory.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/model/model_spec.h"
#include "router/sizing/layer_partition.h"

namespace stagecoach::router {

// What one layer takes on the device of a stage, measured there.
struct LayerOnDevice {
  double one_row_s = 0;    // a step of one row
  double many_rows_s = 0;  // a step of `many_rows`
  int32_t many_rows = 1;
  uint64_t weights_bytes = 0;
  uint64_t kv_bytes_a_token = 0;
  // Memory for the KV cache, beside the weights if `kv_is_fixed`, else together with them.
  uint64_t memory_bytes = 0;
  bool kv_is_fixed = false;
};

struct SplitDemand {
  int32_t measured_layer = 0;   // index of the layer that was measured
  int32_t max_sequences = 1;    // that run at the same time
  int32_t sequence_tokens = 1;  // of one sequence, for the KV cache
};

// A split and what it promises.
struct MeasuredSplit {
  std::vector<LayerRange> layers;  // empty: the model does not fit
  int32_t n_sequences = 0;  // that the stage with the least memory holds, at most as demanded
  double step_s = 0;        // time of the slowest stage for one microbatch of them

  // Rows that leave the pipeline per second, while every stage has a microbatch.
  double rows_per_s() const;
};

// `layers` as they are, one range per device.
MeasuredSplit JudgeSplit(const ModelSpec& spec, std::span<const LayerOnDevice> devices,
                         const SplitDemand& demand, std::vector<LayerRange> layers);

// The contiguous split with the most rows per second: more layers on a fast device make the slowest
// stage faster, and more on a device with much memory make room for more sequences, whose rows
// share the time to read the weights. Times between one row and many rows are interpolated, those
// of other layers follow from their numbers of weights (LayerCost). Tries about 50 numbers of
// sequences, each by dynamic programming.
// REQUIRES: at most as many devices as layers.
MeasuredSplit SplitByMeasure(const ModelSpec& spec, std::span<const LayerOnDevice> devices,
                             const SplitDemand& demand);

}  // namespace stagecoach::router
