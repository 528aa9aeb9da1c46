#include "deploy/plan/plan_model.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/temp_dir.h"
#include "deploy/check/model_facts.h"

namespace stagecoach::plan {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

constexpr const char* kMistral7B =
    R"({"architectures": ["MistralForCausalLM"], "model_type": "mistral",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32768, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0, "hidden_act": "silu", "tie_word_embeddings": false, "sliding_window": null,
    "torch_dtype": "bfloat16"})";

struct Planned {
  check::ModelFacts facts;
  ServingPlan plan;
};

Planned Plan(const char* config, int32_t n_stages, std::string_view gpu, int32_t context = 0) {
  TempDir dir;
  dir.Write("config.json", config);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  check::ModelFacts facts = *check::DescribeModel(spec, std::nullopt, {}, n_stages);
  ServingPlan plan = PlanServing(spec, facts, {.gpu = *FindGpu(gpu), .context_tokens = context});
  return {std::move(facts), std::move(plan)};
}

TEST_CASE("a plan's KV cache is what a server on that GPU has") {
  const ServingPlan plan = Plan(kMistral7B, 1, "h200").plan;
  REQUIRE(plan.fits());
  CHECK_THAT(double(plan.n_kv_tokens), WithinRel(902'320.0, 0.02));  // measured
  CHECK(plan.n_sequences == plan.n_kv_tokens / 32768);
  // 14.2 GB at most of 4.8 TB/s.
  CHECK(plan.one_ms_a_token > 14.2 / 4.8);
  CHECK(plan.one_ms_a_token < 2 * 14.2 / 4.8);
}

TEST_CASE("more stages leave more KV cache and give more tokens, one request waits for hops") {
  const Planned one = Plan(kMistral7B, 1, "H200", 4096), four = Plan(kMistral7B, 4, "H200", 4096);
  REQUIRE(four.plan.stages.size() == 4);
  CHECK(four.plan.n_kv_tokens > 4 * one.plan.n_kv_tokens);
  CHECK(four.plan.batch_tokens_per_s > 2 * one.plan.batch_tokens_per_s);
  CHECK(four.plan.prompt_tokens_per_s > 3 * one.plan.prompt_tokens_per_s);
  CHECK(four.plan.one_ms_a_token > one.plan.one_ms_a_token);
  CHECK_THAT(ToText(four.plan, four.facts), ContainsSubstring("4 stages on H200"));
}

TEST_CASE("what does not fit is said, with what is short") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const check::ModelFacts facts = *check::DescribeModel(spec, DType::kF32, {}, 1);
  const ServingPlan plan = PlanServing(spec, facts, {.gpu = *FindGpu("A10")});
  CHECK_FALSE(plan.fits());
  CHECK_THAT(ToText(plan, facts),
             ContainsSubstring(" short") && ContainsSubstring("It does not fit: stage 0"));
  CHECK(ToJson(plan).at("fits").as_bool() == false);
}

TEST_CASE("a row of a model with experts reads those that it is routed to") {
  constexpr const char* kMixtral =
      R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
      "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
      "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
      "rope_theta": 1000000.0, "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2,
      "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";
  const ServingPlan plan = Plan(kMixtral, 2, "H200").plan;
  for (const StagePlan& stage : plan.stages) {
    CHECK_THAT(double(stage.read_by_one) / double(stage.read_by_many), WithinRel(0.277, 0.03));
  }
}

}  // namespace
}  // namespace stagecoach::plan
