#include "cli/plan/stage_work.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "common/kv_block.h"
#include "kernels/cuda/packed/packed_scratch.h"

namespace stagecoach::plan {
namespace {

bool MultipliesFp8(const check::StageFacts& stage, const Gpu& gpu) {
  return std::all_of(stage.kept.begin(), stage.kept.end(), [&](const check::KeptMatrix& matrix) {
    return matrix.parts.front().is_expert ||
           kernels::cuda::PackedScratchOf(matrix.parts, matrix.cols, gpu.is_hopper,
                                          /*batch_invariant=*/false)
                   .quantized > 0;
  });
}

std::vector<AttentionWork> AttentionOf(const ModelSpec& spec, const check::StageFacts& stage,
                                       const std::vector<uint64_t>& block_bytes) {
  std::vector<AttentionWork> groups;
  groups.reserve(block_bytes.size());
  for (size_t g = 0; g < block_bytes.size(); ++g) {
    groups.push_back({.window = spec.kv_groups[g].window,
                      .bytes_a_token = static_cast<double>(block_bytes[g]) / kKvBlockTokens});
  }
  for (int32_t i = 0; i < stage.n_layers; ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(stage.first_layer + i)];
    if (!layer.has_attention()) continue;
    const HeadShape heads = spec.heads(layer);
    groups[static_cast<size_t>(layer.kv_group)].flops_a_key +=
        2.0 * (heads.q_width() + heads.out_width());
  }
  return groups;
}

}  // namespace

StageWork WorkOf(const ModelSpec& spec, const check::ModelFacts& facts,
                 const check::StageFacts& stage, const std::vector<uint64_t>& block_bytes,
                 const Gpu& gpu) {
  StageWork work{.every_row = stage.every_row,
                 .experts = stage.experts,
                 .multiplies_fp8 = MultipliesFp8(stage, gpu),
                 .kv_is_fp8 = facts.kv_dtype == DType::kFp8,
                 .attention = AttentionOf(spec, stage, block_bytes),
                 .state_bytes = static_cast<double>(stage.state_bytes)};
  if (spec.experts.n_experts > 0) {
    work.used_share = spec.experts.n_used / static_cast<double>(spec.experts.n_experts);
  }
  for (int32_t i = 0; i < stage.n_layers; ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(stage.first_layer + i)];
    work.weights += spec.WeightsOfEveryRow(layer);
    if (!layer.has_experts) continue;
    work.expert_weights += spec.WeightsOfExperts() * work.used_share;
    ++work.n_expert_layers;
  }
  const bool is_last = stage.first_layer + stage.n_layers == spec.n_layers();
  if (is_last) work.head_weights = static_cast<double>(spec.vocab_size) * spec.embed_size;
  if (stage.first_layer == 0) {  // the projection of the layers' inputs
    work.weights += 1.0 * spec.n_layers() * spec.layer_inputs.width * spec.hidden_size;
  }
  return work;
}

double ShareInUse(const StageWork& work, double rows) {
  return 1 - std::pow(1 - work.used_share, rows);
}

double BytesRead(const StageWork& work, double rows) {
  return static_cast<double>(work.every_row.bytes) +
         ShareInUse(work, rows) * static_cast<double>(work.experts.bytes);
}

}  // namespace stagecoach::plan
