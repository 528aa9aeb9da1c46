#include "common/model/device_support.h"

#include <fmt/format.h>

#include "common/encoding/blocks.h"
#include "common/env_switch.h"
#include "common/status.h"

namespace stagecoach {
namespace {

// Attention kernels for tensor cores exist for multiples of kTileHeadDims up to kMaxTileHeadDim.
// They follow one plan of a step, which is made for the model's usual heads. Other sizes take a
// kernel without a plan.
constexpr int32_t kTileHeadDims = 64, kMaxTileHeadDim = 256;
// A warp chooses groups of experts with the logits of a row in its registers.
constexpr int32_t kMaxGroupedExperts = 256, kMaxGroups = 32, kMaxUsedOfGroups = 32;
// Kernels read 4 numbers of a layer's inputs at a time. They lie behind the hidden states.
constexpr int32_t kInputsAlignment = 4;
// Packed weights lie in blocks of kBlockInputs with scales of their own. Groups within a block have
// a power of two of chunks (kernels/cuda/packed/packed_layout.h).
constexpr int32_t kChunkInputs = 32, kBlockInputs = 256;

absl::Status CheckHeads(const ModelSpec& spec) {
  for (const LayerSpec& layer : spec.layers) {
    if (!layer.has_attention() || spec.latent) continue;
    const HeadShape heads = spec.heads(layer);
    const bool is_other = heads.head_dim != spec.head_dim || heads.n_kv_heads != spec.n_kv_heads;
    if (!is_other || heads.head_dim > kMaxTileHeadDim || heads.head_dim % kTileHeadDims != 0) {
      continue;
    }
    return absl::UnimplementedError(fmt::format(
        "{} runs on CPUs only: its layers have {} KV heads of size {}, and others have {} of size "
        "{}; GPU kernels support one kind of this size in a model",
        spec.architecture, heads.n_kv_heads, heads.head_dim, spec.n_kv_heads, spec.head_dim));
  }
  return absl::OkStatus();
}

absl::Status CheckExpertGroups(const ModelSpec& spec) {
  const ExpertSpec& experts = spec.experts;
  const int32_t n_groups = experts.softmax_groups.n_groups;
  if (n_groups == 1 || (experts.n_experts <= kMaxGroupedExperts && n_groups <= kMaxGroups &&
                        experts.n_used <= kMaxUsedOfGroups)) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(fmt::format(
      "{} runs on CPUs only: it chooses {} of {} experts by softmax from {} groups; GPU kernels "
      "support {} of {} from {}",
      spec.architecture, experts.n_used, experts.n_experts, n_groups, kMaxUsedOfGroups,
      kMaxGroupedExperts, kMaxGroups));
}

absl::Status CheckRecurrence(const ModelSpec& spec) {
  if (!spec.recurrent) return absl::OkStatus();
  const RecurrentShape& shape = spec.recurrent->shape;
  if (shape.key_dim <= kMaxGpuRecurrentKeys && shape.conv_width <= kMaxGpuConvWidth) {
    return absl::OkStatus();
  }
  return absl::UnimplementedError(fmt::format(
      "{} runs on CPUs only: its recurrent layers have heads of {} keys and "
      "convolutions of {} positions; GPU kernels support {} and {}",
      spec.architecture, shape.key_dim, shape.conv_width, kMaxGpuRecurrentKeys, kMaxGpuConvWidth));
}

}  // namespace

absl::Status CheckRunsOnGpus(const ModelSpec& spec) {
  if (spec.layer_inputs.width > 0 && spec.hidden_size % kInputsAlignment != 0) {
    return absl::UnimplementedError(
        fmt::format("{} runs on CPUs only: its layers have inputs of their own, and its hidden "
                    "size, {}, is no multiple of {}",
                    spec.architecture, spec.hidden_size, kInputsAlignment));
  }
  SC_RETURN_IF_ERROR(CheckExpertGroups(spec));
  SC_RETURN_IF_ERROR(CheckHeads(spec));
  return CheckRecurrence(spec);
}

bool GpusKeep(const Encoding& encoding, int32_t cols) {
  if (!IsQuantized(encoding.code) || cols % kChunkInputs != 0) return false;
  if (IsGgufBlock(encoding.code)) {
    return cols % static_cast<int32_t>(FormOf(encoding.code).elements) == 0;
  }
  if (encoding.code == Code::kNvFp4) return true;
  if (encoding.code == Code::kMxFp4) return encoding.group == kChunkInputs;
  const int32_t group = encoding.group;
  return group == 0 || group == 32 || group == 64 || group == 128 || group % kBlockInputs == 0;
}

bool GpusKeepExperts(const Encoding& encoding, int32_t cols) {
  return GpusKeepAnyExperts() && GpusKeep(encoding, cols) && !encoding.is_permuted;
}

bool GpusKeepAnyExperts() { return !IsSwitched(kPackedExpertsSwitch, "off"); }

}  // namespace stagecoach
