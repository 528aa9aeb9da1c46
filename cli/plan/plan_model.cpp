#include "cli/plan/plan_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "cli/check/model_facts.h"
#include "common/config/load_config.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/packed/packed_scratch.h"
#include "router/sizing/kv_sizing.h"
#include "router/sizing/step_limits.h"
#include "stagecoach/v1/load.pb.h"
#include "worker/model/kv_cache.h"
#include "worker/model/link_needs.h"
#include "worker/model/scratch_sizes.h"

namespace stagecoach::plan {
namespace {

// Shares of the data sheet's figures. The bandwidth's is that of a 7B shape on an H200.
constexpr double kBandwidthShare = 0.83;
constexpr double kFlopsShare = 0.6;
// Kernels of a layer with experts that do not hide behind its reads: choosing experts, and starts
// of kernels for a few rows. With the next constant, these were fitted to what H100s and H200s take
// for one request (measured_test.cpp), with errors of up to 13 %. Layers without experts show no
// such time.
constexpr double kExpertLayerSeconds = 25.5e-6;
// Quantized weights that a step of one row turns into numbers. H100 and H200 differ in bandwidth,
// not in this. GPUs with less bandwidth wait for memory rather than for this.
constexpr double kConvertedPerSecond = 9e12;
// Time of one hop. With two stages a step of one row takes two hops.
constexpr double kHopSeconds = 34e-6;
// The CUDA context, cuBLAS's workspaces and CUDA graphs.
constexpr uint64_t kRuntimeBytes = uint64_t{1200} << 20;

worker::StageModelOptions StageOptions(const ModelSpec& spec, const check::ModelFacts& facts,
                                       size_t stage, const v1::LoadConfig& limits) {
  const check::StageFacts& layers = facts.stages[stage];
  v1::LoadConfig config = limits;
  config.set_dtype(ToProto(facts.act_dtype));
  if (facts.kv_dtype == DType::kFp8) config.set_kv_dtype(v1::KV_DTYPE_FP8);
  config.set_max_model_len(spec.max_positions);
  return {.first_layer = layers.first_layer,
          .n_layers = layers.n_layers,
          .is_first = stage == 0,
          .is_last = stage + 1 == facts.stages.size(),
          .config = config,
          .max_logit_rows = worker::SequencesAtOnce(config.max_sequences(),
                                                    static_cast<uint32_t>(facts.stages.size()))};
}

// Whether FlashInfer's kernel computes attention of some layers on Hopper: layers with the model's
// heads and without a window.
bool GathersKeys(const ModelSpec& spec) {
  return !spec.latent &&
         std::any_of(spec.kv_groups.begin(), spec.kv_groups.end(), [&](const KvGroupSpec& group) {
           return group.window == 0 && (group.head_dim == 0 || group.head_dim == spec.head_dim);
         });
}

// Scratch memory of kernels/cuda. GPUs before Hopper need none for attention.
worker::ScratchDevice GpuScratch(const ModelSpec& spec, const worker::StageModelOptions& options) {
  namespace cuda = kernels::cuda;
  const int64_t n_keys = std::min<int64_t>(options.config.max_model_len(), cuda::kMostGathered);
  return {.act_dtype = DTypeOf(options.config).value_or(spec.stored_dtype),
          .runs_ahead = true,
          .attention_bytes =
              GathersKeys(spec) ? cuda::GatheredBytes(n_keys, spec.n_kv_heads, spec.head_dim) : 0,
          .expert_bytes =
              spec.experts.n_experts == 0
                  ? 0
                  : cuda::ExpertScratch(worker::ExpertShapeOf(options, spec), DType::kF32).bytes};
}

// Scratch memory of kernels/cuda for products with quantized matrices.
uint64_t QuantizedScratchBytes(const ModelSpec& spec, const check::StageFacts& stage,
                               const Gpu& gpu, const v1::LoadConfig& limits) {
  namespace cuda = kernels::cuda;
  const ExpertSpec& experts = spec.experts;
  const int64_t n_pairs = int64_t{limits.max_batched_tokens()} * experts.n_used;
  const bool has_tiles = gpu.is_hopper && spec.gated_mlp;
  const bool expands_experts =
      !has_tiles && n_pairs > int64_t{cuda::kMostPackedRowsOfExpert} * experts.n_experts;
  cuda::PackedScratch scratch;
  for (const check::KeptMatrix& matrix : stage.kept) {
    scratch.Include(cuda::PackedScratchOf(matrix.parts, matrix.cols, gpu.is_hopper,
                                          /*batch_invariant=*/false));
    if (!matrix.parts.front().is_expert || !expands_experts) continue;
    const int64_t bytes = cuda::ExpandedBytes(matrix.parts, matrix.cols);
    const int64_t together = bytes * cuda::ExpandedTogether(bytes, experts.n_experts);
    scratch.Include({.expanded = static_cast<size_t>(together)});
  }
  return scratch.total();
}

// Size of the block tables and row arrays, which are most of StepInputs.
uint64_t StepInputBytes(const kernels::StepLimits& limits) {
  const uint64_t rows = static_cast<uint64_t>(limits.max_tokens);
  const uint64_t table = static_cast<uint64_t>(limits.max_slots) * uint64_t(limits.max_blocks);
  return (2 * rows + limits.groups.size() * (rows + table)) * sizeof(int32_t);
}

// Share of the experts that a row uses.
double UsedShare(const ModelSpec& spec) {
  if (spec.experts.n_experts == 0) return 0;
  return spec.experts.n_used / static_cast<double>(spec.experts.n_experts);
}

// Number of weights that a row is multiplied with.
double WeightsOfOneRow(const ModelSpec& spec, const check::StageFacts& stage) {
  double n = 0;
  for (int32_t i = 0; i < stage.n_layers; ++i) {
    const LayerSpec& layer = spec.layers[static_cast<size_t>(stage.first_layer + i)];
    n += spec.WeightsOfEveryRow(layer);
    if (layer.has_experts) n += spec.WeightsOfExperts() * UsedShare(spec);
  }
  const bool is_last = stage.first_layer + stage.n_layers == spec.n_layers();
  if (is_last) n += static_cast<double>(spec.vocab_size) * spec.embed_size;  // the head
  if (stage.first_layer == 0) {  // the projection of the layers' inputs
    n += 1.0 * spec.n_layers() * spec.layer_inputs.width * spec.hidden_size;
  }
  return n;
}

// What a step reads whose rows use this share of the experts.
check::WeightReads ReadsWith(double share, const check::StageFacts& stage) {
  const auto sum = [&](uint64_t every_row, uint64_t experts) {
    return every_row + static_cast<uint64_t>(share * static_cast<double>(experts));
  };
  return {sum(stage.every_row.bytes, stage.experts.bytes),
          sum(stage.every_row.n_quantized, stage.experts.n_quantized)};
}

uint64_t BytesOfSequence(const ModelSpec& spec, const worker::KvCache& kv, int32_t n_tokens) {
  const std::vector<uint64_t> block_bytes = kv.block_bytes();
  uint64_t bytes = 0;
  for (size_t g = 0; g < block_bytes.size(); ++g) {
    bytes += block_bytes[g] * check::BlocksOfOneSequence(spec.kv_groups[g].window.size, n_tokens);
  }
  return bytes;
}

StagePlan PlanStage(const ModelSpec& spec, const check::ModelFacts& facts, size_t stage,
                    const PlanOptions& options, const v1::LoadConfig& limits) {
  const check::StageFacts& layers = facts.stages[stage];
  StagePlan plan{.facts = layers};
  const worker::StageModelOptions model = StageOptions(spec, facts, stage, limits);
  plan.step_bytes =
      kRuntimeBytes +
      worker::ReservedBytes(worker::LinkNeedsOf(static_cast<int32_t>(stage),
                                                static_cast<int32_t>(facts.stages.size()))
                                .communicators) +
      worker::SizeScratch(model, spec, GpuScratch(spec, model)).total() +
      QuantizedScratchBytes(spec, layers, options.gpu, limits) +
      StepInputBytes(worker::StepLimitsOf(model, spec));
  const double usable = static_cast<double>(options.gpu.memory_bytes) * options.memory_fraction;
  plan.kv_bytes =
      static_cast<int64_t>(usable) - static_cast<int64_t>(layers.weights_bytes + plan.step_bytes);
  // With a given cache size, kv_bytes is that size, or the (negative) number of missing bytes.
  if (const auto given = static_cast<int64_t>(options.kv_memory_bytes); given > 0) {
    plan.kv_bytes = plan.kv_bytes >= given ? given : plan.kv_bytes - given;
  }
  const worker::KvCache kv(spec, layers.first_layer, layers.n_layers, facts.kv_dtype);
  plan.block_bytes = kv.block_bytes();
  plan.bytes_a_sequence = BytesOfSequence(spec, kv, options.context_tokens);
  plan.read_by_one = ReadsWith(UsedShare(spec), layers);
  plan.read_by_many = ReadsWith(1, layers).bytes;
  const auto first = spec.layers.begin() + layers.first_layer;
  plan.n_expert_layers = static_cast<int32_t>(std::count_if(
      first, first + layers.n_layers, [](const LayerSpec& layer) { return layer.has_experts; }));
  plan.flops_a_token = 2 * WeightsOfOneRow(spec, layers);
  return plan;
}

// KV pools that a router would create from the stages' memory; nullopt if it would refuse.
std::optional<router::KvPlan> SizePools(const ModelSpec& spec, std::span<const StagePlan> stages,
                                        const v1::LoadConfig& limits, int32_t context_tokens) {
  std::vector<router::StageKvMemory> memory;
  for (const StagePlan& stage : stages) {
    if (stage.kv_bytes < 0) return std::nullopt;
    memory.push_back({.name = "",
                      .kv_bytes = static_cast<uint64_t>(stage.kv_bytes),
                      .block_bytes = stage.block_bytes,
                      .state_bytes = stage.facts.state_bytes});
  }
  absl::StatusOr<router::KvPlan> kv =
      router::SizeKv(spec.kv_groups, memory,
                     {.max_sequences = limits.max_sequences(),
                      .max_batched_tokens = limits.max_batched_tokens(),
                      .max_prefill_chunk = limits.max_prefill_chunk(),
                      .max_model_len = context_tokens});
  if (!kv.ok()) return std::nullopt;
  return *std::move(kv);
}

// The stage with the fewest KV blocks, or with the most missing memory.
size_t Tightest(const ModelSpec& spec, std::span<const StagePlan> stages,
                const v1::LoadConfig& limits, int32_t context_tokens) {
  const auto room = [&](const StagePlan& stage) {
    if (stage.kv_bytes < 0) return stage.kv_bytes;
    const auto kv = SizePools(spec, {&stage, 1}, limits, context_tokens);
    return kv ? static_cast<int64_t>(kv->kv_blocks) : 0;
  };
  const auto least =
      std::min_element(stages.begin(), stages.end(),
                       [&](const auto& a, const auto& b) { return room(a) < room(b); });
  return static_cast<size_t>(least - stages.begin());
}

// Number of sequences of context_tokens for which every KV group has enough blocks.
int64_t SequencesAtOnce(const ModelSpec& spec, const router::KvPlan& kv, int32_t context_tokens) {
  if (kv.max_model_len < context_tokens) return 0;
  auto n = static_cast<uint64_t>(kv.max_sequences);
  for (size_t g = 0; g < spec.kv_groups.size(); ++g) {
    n = std::min(n, kv.n_blocks[g] /
                        check::BlocksOfOneSequence(spec.kv_groups[g].window.size, context_tokens));
  }
  return static_cast<int64_t>(n);
}

}  // namespace

ServingPlan PlanServing(const ModelSpec& spec, const check::ModelFacts& facts,
                        const PlanOptions& options) {
  ServingPlan plan{.options = options};
  if (plan.options.context_tokens == 0) plan.options.context_tokens = facts.context_tokens;
  v1::LoadConfig limits;
  limits.set_max_batched_tokens(options.max_batched_tokens);
  limits.set_max_sequences(options.max_sequences);
  limits.set_hidden_dtype(options.hidden_dtype);
  limits = router::WithDefaults(std::move(limits), /*on_gpus=*/true, facts.stages.size());
  plan.options.max_sequences = limits.max_sequences();
  for (size_t stage = 0; stage < facts.stages.size(); ++stage) {
    plan.stages.push_back(PlanStage(spec, facts, stage, plan.options, limits));
  }
  const int32_t context_tokens = plan.options.context_tokens;
  plan.tightest = Tightest(spec, plan.stages, limits, context_tokens);
  if (const auto kv = SizePools(spec, plan.stages, limits, context_tokens)) {
    plan.n_kv_blocks = static_cast<int64_t>(kv->kv_blocks);
    plan.n_sequences = SequencesAtOnce(spec, *kv, context_tokens);
    plan.options.max_sequences = kv->max_sequences;  // states may allow fewer
  }
  if (!plan.fits()) return plan;

  const double bandwidth = options.gpu.bytes_per_s * kBandwidthShare;
  const double flops = options.gpu.bf16_flops_per_s * kFlopsShare;
  const double hop = plan.stages.size() > 1 ? kHopSeconds : 0;
  // On average half of each sequence's context is filled, so twice as many sequences fit.
  plan.n_batch = static_cast<int32_t>(
      std::min<int64_t>(plan.options.max_sequences, std::max<int64_t>(1, 2 * plan.n_sequences)));
  const double rows = std::ceil(plan.n_batch / static_cast<double>(plan.stages.size()));
  double one = 0, slowest_decode = 0, slowest_prefill = 0;
  for (const StagePlan& stage : plan.stages) {
    // A step reads and writes the state of each of its sequences.
    const double state = 2 * static_cast<double>(stage.facts.state_bytes);
    const double kernels = stage.n_expert_layers * kExpertLayerSeconds;
    one += (static_cast<double>(stage.read_by_one.bytes) + state) / bandwidth +
           static_cast<double>(stage.read_by_one.n_quantized) / kConvertedPerSecond + kernels + hop;
    const double kv = rows * (static_cast<double>(stage.bytes_a_sequence) / 2 + state);
    const double decode = std::max(static_cast<double>(stage.read_by_many) / bandwidth,
                                   rows * stage.flops_a_token / flops) +
                          kv / bandwidth + kernels + hop;
    slowest_decode = std::max(slowest_decode, decode);
    slowest_prefill = std::max(slowest_prefill, stage.flops_a_token / flops);
  }
  plan.one_ms_a_token = one * 1e3;
  plan.batch_tokens_per_s = rows / slowest_decode;
  plan.prompt_tokens_per_s = 1 / slowest_prefill;
  return plan;
}

}  // namespace stagecoach::plan
