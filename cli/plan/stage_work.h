// What a stage reads and computes, as counts that times are estimated from.
#pragma once

#include <cstdint>
#include <vector>

#include "cli/check/model_report.h"
#include "cli/plan/gpu_table.h"
#include "common/key_window.h"
#include "common/model/model_spec.h"

namespace stagecoach::plan {

// Layers whose attention has the same window.
struct AttentionWork {
  KeyWindow window;
  double bytes_a_token = 0;  // of the KV cache
  double flops_a_key = 0;    // of a row, for each key that it attends to
};

// Sums over the stage's layers. Numbers of weights are those that a row is multiplied with.
struct StageWork {
  check::WeightReads every_row;  // matrices that all rows are multiplied with
  check::WeightReads experts;    // all experts
  double weights = 0;            // in matrices of all rows, without the output head
  double head_weights = 0;       // in the output head; 0: another stage has it
  double expert_weights = 0;     // in the experts that the row uses
  double used_share = 0;         // of a layer's experts, that a row uses; 0: there are none
  int32_t n_expert_layers = 0;
  bool multiplies_fp8 = false;  // the GPU multiplies quantized matrices of all rows in FP8
  bool kv_is_fp8 = false;
  std::vector<AttentionWork> attention;
  double state_bytes = 0;  // of a sequence, in recurrent layers
};

// block_bytes: of a KV block over the stage's layers, by KV group.
StageWork WorkOf(const ModelSpec& spec, const check::ModelFacts& facts,
                 const check::StageFacts& stage, const std::vector<uint64_t>& block_bytes,
                 const Gpu& gpu);

// Bytes of weights that a step of so many rows reads. Rows choose experts independently.
double BytesRead(const StageWork& work, double rows);
// Share of a layer's experts that at least one of the rows uses.
double ShareInUse(const StageWork& work, double rows);

}  // namespace stagecoach::plan
