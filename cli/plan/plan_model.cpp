#include "cli/plan/plan_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "cli/check/model_facts.h"
#include "cli/plan/step_time.h"
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

// Scratch memory of kernels/cuda. GPUs before Hopper need none for attention.
worker::ScratchDevice GpuScratch(const ModelSpec& spec, const worker::StageModelOptions& options) {
  namespace cuda = kernels::cuda;
  const int64_t n_keys = std::min<int64_t>(options.config.max_model_len(), cuda::kMostGathered);
  return {.act_dtype = DTypeOf(options.config).value_or(spec.stored_dtype),
          .runs_ahead = true,
          .attention_bytes = kernels::HasUsualFullGroup(worker::StepLimitsOf(options, spec))
                                 ? cuda::GatheredBytes(n_keys, spec.n_kv_heads, spec.head_dim)
                                 : 0,
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
  plan.work = WorkOf(spec, facts, layers, plan.block_bytes, options.gpu);
  return plan;
}

// KV pools that a router would create from the stages' memory; nullopt if it would refuse.
std::optional<router::KvPlan> SizePools(const ModelSpec& spec, std::span<const StagePlan> stages,
                                        const v1::LoadConfig& limits, const PlanOptions& options) {
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
                      .max_model_len = options.context_tokens,
                      .saves_states = options.saves_states});
  if (!kv.ok()) return std::nullopt;
  return *std::move(kv);
}

// The stage with the fewest KV blocks, or with the most missing memory.
size_t Tightest(const ModelSpec& spec, std::span<const StagePlan> stages,
                const v1::LoadConfig& limits, const PlanOptions& options) {
  const auto room = [&](const StagePlan& stage) {
    if (stage.kv_bytes < 0) return stage.kv_bytes;
    const auto kv = SizePools(spec, {&stage, 1}, limits, options);
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

// Fills in n_batch and the rates.
void EstimateSpeed(ServingPlan& plan) {
  const PlanOptions& options = plan.options;
  const double hop = plan.stages.size() > 1 ? kHopSeconds : 0;
  // While a sequence generates, it grows from its prompt to its whole context.
  const double mean_context = (options.prompt_tokens + options.context_tokens) / 2.0;
  const double n_fit =
      static_cast<double>(plan.n_sequences) * options.context_tokens / mean_context;
  plan.n_batch = static_cast<int32_t>(std::min<double>(options.max_sequences, n_fit));
  const double rows = std::ceil(plan.n_batch / static_cast<double>(plan.stages.size()));
  const double prompts_a_token =
      static_cast<double>(options.prompt_tokens) / (options.context_tokens - options.prompt_tokens);
  double one = 0, slowest = 0, slowest_prompt = 0;  // seconds per token
  for (const StagePlan& stage : plan.stages) {
    one += DecodeSeconds(stage.work, 1, 0, options.gpu) + hop;
    const double decode = DecodeSeconds(stage.work, rows, mean_context, options.gpu) + hop;
    const double prompt =
        PromptSeconds(stage.work, options.max_batched_tokens, options.prompt_tokens, options.gpu) /
        options.max_batched_tokens;
    slowest = std::max(slowest, decode / rows + prompts_a_token * prompt);
    slowest_prompt = std::max(slowest_prompt, prompt);
  }
  plan.one_ms_a_token = one * 1e3;
  plan.batch_tokens_per_s = 1 / slowest;
  plan.prompt_tokens_per_s = 1 / slowest_prompt;
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
  plan.tightest = Tightest(spec, plan.stages, limits, plan.options);
  if (const auto kv = SizePools(spec, plan.stages, limits, plan.options)) {
    plan.n_kv_blocks = static_cast<int64_t>(kv->kv_blocks);
    plan.n_sequences = SequencesAtOnce(spec, *kv, context_tokens);
    plan.options.max_sequences = kv->max_sequences;  // states may allow fewer
  }
  if (!plan.fits()) return plan;

  EstimateSpeed(plan);
  return plan;
}

}  // namespace stagecoach::plan
