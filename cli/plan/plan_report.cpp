#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <string>

#include "cli/plan/plan_model.h"
#include "common/size.h"

namespace stagecoach::plan {
namespace {

std::string Rounded(double value) {
  if (value >= 10'000) return fmt::format("{:.0f}", std::round(value / 1000) * 1000);
  if (value >= 100) return fmt::format("{:.0f}", std::round(value / 10) * 10);
  return fmt::format("{:.1f}", value);
}

std::string Layers(const check::StageFacts& stage) {
  return fmt::format("{}-{}", stage.first_layer, stage.first_layer + stage.n_layers - 1);
}

std::string Table(const ServingPlan& plan) {
  std::string text = fmt::format("  {:<6} {:<8} {:>10} {:>10} {:>12}\n", "stage", "layers",
                                 "weights", "step", "KV cache");
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    const std::string kv =
        stage.kv_bytes >= 0
            ? FormatBytes(static_cast<uint64_t>(stage.kv_bytes))
            : fmt::format("{} short", FormatBytes(static_cast<uint64_t>(-stage.kv_bytes)));
    text += fmt::format("  {:<6} {:<8} {:>10} {:>10} {:>12}\n", i, Layers(stage.facts),
                        FormatBytes(stage.facts.weights_bytes), FormatBytes(stage.step_bytes), kv);
  }
  return text;
}

}  // namespace

std::string ToText(const ServingPlan& plan, const check::ModelFacts& facts) {
  const Gpu& gpu = plan.options.gpu;
  std::string text = fmt::format(
      "{}, {} layers, {:.2f} billion parameters, {}\n{} on {} of {}, {:.2f} TB/s and {:.0f} "
      "TFLOP/s; {:g} of the memory is used\n\n{}",
      facts.architecture, facts.n_layers(), static_cast<double>(facts.n_parameters) * 1e-9,
      facts.encodings.front().name,
      plan.stages.size() == 1 ? "1 stage" : fmt::format("{} stages", plan.stages.size()), gpu.name,
      FormatBytes(gpu.memory_bytes), gpu.bytes_per_s * 1e-12, gpu.bf16_flops_per_s * 1e-12,
      plan.options.memory_fraction, Table(plan));
  if (!plan.fits()) {
    return text +
           fmt::format("\nIt does not fit: stage {} has no room for one sequence of {} tokens.",
                       plan.tightest, plan.options.context_tokens);
  }
  std::string bound;
  if (facts.kv_dtype != facts.act_dtype) bound = fmt::format(", in {}", DTypeName(facts.kv_dtype));
  if (plan.stages.size() > 1) bound += fmt::format("; stage {} has the least room", plan.tightest);
  text += fmt::format(
      "\n  KV cache     {} sequences of {} tokens; {} blocks of {} tokens, {} tokens in all{}\n",
      plan.n_sequences, plan.options.context_tokens, plan.n_kv_blocks, kKvBlockTokens,
      plan.n_kv_tokens(), bound);
  text += fmt::format(
      "  one request  about {:.1f} ms per token: each token reads the weights{}\n",
      plan.one_ms_a_token,
      plan.stages.size() > 1 ? ", stage after stage, and adds the hops between stages" : "");
  text += fmt::format("  {:<12} about {} tokens per second, {}\n",
                      fmt::format("{} at once", plan.n_batch), Rounded(plan.batch_tokens_per_s),
                      plan.options.prompt_tokens == 0
                          ? "with half of their context filled"
                          : fmt::format("with prompts of {} tokens computed in the same time",
                                        plan.options.prompt_tokens));
  text += fmt::format(
      "  prompts      about {} tokens per second, limited by the {} of the busiest stage",
      Rounded(plan.prompt_tokens_per_s),
      plan.options.prompt_tokens == 0 ? "GEMMs" : "GEMMs and attention");
  return text;
}

boost::json::object ToJson(const ServingPlan& plan) {
  boost::json::array stages;
  for (const StagePlan& stage : plan.stages) {
    stages.push_back({{"first_layer", stage.facts.first_layer},
                      {"layers", stage.facts.n_layers},
                      {"weights_bytes", stage.facts.weights_bytes},
                      {"step_bytes", stage.step_bytes},
                      {"kv_bytes", stage.kv_bytes}});
  }
  boost::json::object json{{"gpu", std::string(plan.options.gpu.name)},
                           {"fits", plan.fits()},
                           {"stages", std::move(stages)},
                           {"context_tokens", plan.options.context_tokens},
                           {"prompt_tokens", plan.options.prompt_tokens},
                           {"sequences", plan.n_sequences},
                           {"kv_blocks", plan.n_kv_blocks},
                           {"kv_tokens", plan.n_kv_tokens()}};
  if (plan.fits()) {
    json["one_request_ms_per_token"] = plan.one_ms_a_token;
    json["batch"] = plan.n_batch;
    json["batch_tokens_per_s"] = plan.batch_tokens_per_s;
    json["prompt_tokens_per_s"] = plan.prompt_tokens_per_s;
  }
  return json;
}

}  // namespace stagecoach::plan
