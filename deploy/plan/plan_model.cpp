#include "deploy/plan/plan_model.h"

#include <algorithm>
#include <cmath>

#include "deploy/check/model_facts.h"
#include "kernels/ops.h"
#include "router/dispatch/step_limits.h"
#include "worker/model/kv_cache.h"

namespace stagecoach::plan {
namespace {

// Measured with a 7B shape on an H200 (tests/bench/results).
constexpr double kBandwidthShare = 0.83;
constexpr double kFlopsShare = 0.6;
constexpr double kHopSeconds = 34e-6;  // of two that a step of one row takes with two stages
// CUDA's context, cuBLAS's workspaces, recorded graphs.
constexpr uint64_t kRuntimeBytes = uint64_t{1200} << 20;

uint64_t ActivationBytes(const ModelSpec& spec, DType dtype) {
  const uint64_t width = DTypeBytes(dtype), hidden = spec.hidden_size;
  const uint64_t heads = uint64_t(spec.n_heads) * spec.head_dim;
  const uint64_t qkv = heads + 2 * uint64_t(spec.n_kv_heads) * spec.head_dim;
  const uint64_t mlp =
      std::max<uint64_t>(spec.has_dense_layer() ? spec.intermediate_size : 0,
                         uint64_t(spec.experts.n_used) * spec.experts.intermediate_size);
  return hidden * sizeof(float) + width * (hidden + qkv + heads + 3 * mlp);
}

// Elements of a stage's matrices.
struct Elements {
  double all = 0;
  double of_many = 0;  // that a large batch is multiplied with
  double of_one = 0;   // that one row is
};

Elements CountElements(const ModelSpec& spec, const check::StageFacts& stage) {
  const double hidden = spec.hidden_size;
  const double attention = hidden * spec.head_dim * (2.0 * spec.n_heads + 2.0 * spec.n_kv_heads);
  double dense = 0, experts = 0;
  for (int32_t i = 0; i < stage.n_layers; ++i) {
    dense += attention;
    if (spec.layers[static_cast<size_t>(stage.first_layer + i)].has_experts) {
      experts += 3.0 * hidden * spec.experts.intermediate_size * spec.experts.n_experts;
    } else {
      dense += hidden * spec.intermediate_size * (spec.gated_mlp ? 3 : 2);
    }
  }
  const double embedding = static_cast<double>(spec.vocab_size) * spec.embed_size;
  const bool is_first = stage.first_layer == 0;
  const bool is_last = stage.first_layer + stage.n_layers == spec.n_layers();
  if (is_last) dense += embedding;  // the head
  const double looked_up = is_first && !(is_last && spec.tied_embedding) ? embedding : 0;
  const double used =
      experts == 0 ? 0
                   : experts * spec.experts.n_used / static_cast<double>(spec.experts.n_experts);
  return {dense + experts + looked_up, dense + experts, dense + used};
}

uint64_t BytesOfSequence(const ModelSpec& spec, const worker::KvCache& kv, int32_t n_tokens) {
  const std::vector<uint64_t> block_bytes = kv.block_bytes();
  uint64_t bytes = 0;
  for (size_t g = 0; g < block_bytes.size(); ++g) {
    bytes += block_bytes[g] * check::BlocksOfOneSequence(spec.kv_groups[g].window, n_tokens);
  }
  return bytes;
}

StagePlan PlanStage(const ModelSpec& spec, const check::ModelFacts& facts,
                    const check::StageFacts& stage, const PlanOptions& options) {
  StagePlan plan{.facts = stage};
  const bool is_last = stage.first_layer + stage.n_layers == spec.n_layers();
  plan.step_bytes = kRuntimeBytes + static_cast<uint64_t>(options.max_batched_tokens) *
                                        ActivationBytes(spec, facts.kv_dtype);
  if (is_last) {
    // Of a microbatch: there is one a stage.
    plan.step_bytes += static_cast<uint64_t>(options.max_sequences) / facts.stages.size() *
                       static_cast<uint64_t>(spec.vocab_size) * sizeof(float);
  }
  const double usable = static_cast<double>(options.gpu.memory_bytes) * options.memory_fraction;
  plan.kv_bytes =
      static_cast<int64_t>(usable) - static_cast<int64_t>(stage.weights_bytes + plan.step_bytes);
  const worker::KvCache kv(spec, stage.first_layer, stage.n_layers, facts.kv_dtype);
  for (const uint64_t bytes : kv.block_bytes()) {
    plan.bytes_a_token += bytes / kernels::kBlockTokens;
  }
  plan.bytes_a_sequence = BytesOfSequence(spec, kv, options.context_tokens);
  const Elements elements = CountElements(spec, stage);
  const double weights = static_cast<double>(stage.weights_bytes);
  plan.read_by_many = static_cast<uint64_t>(weights * elements.of_many / elements.all);
  plan.read_by_one = static_cast<uint64_t>(weights * elements.of_one / elements.all);
  plan.flops_a_token = 2 * elements.of_one;
  return plan;
}

}  // namespace

ServingPlan PlanServing(const ModelSpec& spec, const check::ModelFacts& facts,
                        const PlanOptions& options) {
  ServingPlan plan{.options = options};
  if (plan.options.context_tokens == 0) plan.options.context_tokens = facts.context_tokens;
  if (plan.options.max_sequences == 0) {
    plan.options.max_sequences = router::DefaultGpuSequences(facts.stages.size());
  }
  for (const check::StageFacts& stage : facts.stages) {
    plan.stages.push_back(PlanStage(spec, facts, stage, plan.options));
  }
  const auto sequences = [](const StagePlan& stage) {
    return stage.kv_bytes < 0 ? int64_t{-1}
                              : stage.kv_bytes / static_cast<int64_t>(stage.bytes_a_sequence);
  };
  const auto room = [](const StagePlan& stage) {
    return static_cast<double>(stage.kv_bytes) / static_cast<double>(stage.bytes_a_token);
  };
  for (size_t i = 1; i < plan.stages.size(); ++i) {
    if (room(plan.stages[i]) < room(plan.stages[plan.tightest])) plan.tightest = i;
  }
  const StagePlan& tightest = plan.stages[plan.tightest];
  plan.n_sequences = sequences(tightest);
  plan.n_kv_tokens = std::max<int64_t>(0, static_cast<int64_t>(room(tightest)));
  if (!plan.fits()) return plan;

  const double bandwidth = options.gpu.bytes_per_s * kBandwidthShare;
  const double flops = options.gpu.bf16_flops_per_s * kFlopsShare;
  const double hop = plan.stages.size() > 1 ? kHopSeconds : 0;
  // Half of the batch's context has been written, on average.
  plan.n_batch = static_cast<int32_t>(
      std::min<int64_t>(plan.options.max_sequences, std::max<int64_t>(1, 2 * plan.n_sequences)));
  const double rows = std::ceil(plan.n_batch / static_cast<double>(plan.stages.size()));
  double one = 0, slowest_decode = 0, slowest_prefill = 0;
  for (const StagePlan& stage : plan.stages) {
    one += static_cast<double>(stage.read_by_one) / bandwidth + hop;
    const double kv = rows * static_cast<double>(stage.bytes_a_sequence) / 2;
    const double decode = std::max(static_cast<double>(stage.read_by_many) / bandwidth,
                                   rows * stage.flops_a_token / flops) +
                          kv / bandwidth + hop;
    slowest_decode = std::max(slowest_decode, decode);
    slowest_prefill = std::max(slowest_prefill, stage.flops_a_token / flops);
  }
  plan.one_ms_a_token = one * 1e3;
  plan.batch_tokens_per_s = rows / slowest_decode;
  plan.prompt_tokens_per_s = 1 / slowest_prefill;
  return plan;
}

}  // namespace stagecoach::plan
