#include "cli/plan/plan_model.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "cli/check/model_facts.h"
#include "cli/plan/testing/quantized_to.h"
#include "common/temp_dir.h"
#include "router/sizing/kv_sizing.h"

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

constexpr const char* kMixtral =
    R"({"architectures": ["MixtralForCausalLM"], "model_type": "mixtral",
    "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 32000, "max_position_embeddings": 32768, "rms_norm_eps": 1e-5,
    "rope_theta": 1000000.0, "hidden_act": "silu", "num_local_experts": 8, "num_experts_per_tok": 2,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

constexpr const char* kGemma3 =
    R"({"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text",
    "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "num_attention_heads": 8,
    "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208, "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6, "sliding_window": 1024, "sliding_window_pattern": 6,
    "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256, "torch_dtype": "bfloat16"})";

constexpr const char* kQwen3Next =
    R"({"architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
    "hidden_size": 2048, "intermediate_size": 5120, "num_hidden_layers": 48, "num_attention_heads": 16,
    "num_key_value_heads": 2, "head_dim": 256, "vocab_size": 151936, "max_position_embeddings": 262144,
    "rms_norm_eps": 1e-6, "rope_theta": 10000000, "partial_rotary_factor": 0.25, "hidden_act": "silu",
    "full_attention_interval": 4, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_value_head_dim": 128,
    "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 512, "norm_topk_prob": true,
    "num_experts": 512, "num_experts_per_tok": 10, "shared_expert_intermediate_size": 512,
    "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

constexpr const char* kGemma4E2B =
    R"({"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "hidden_size": 1536,
    "intermediate_size": 6144, "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1,
    "head_dim": 256, "global_head_dim": 512, "num_kv_shared_layers": 20, "use_double_wide_mlp": true,
    "hidden_size_per_layer_input": 256, "vocab_size_per_layer_input": 262144, "vocab_size": 262144,
    "max_position_embeddings": 131072, "sliding_window": 512, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16"})";

struct Planned {
  check::ModelFacts facts;
  ServingPlan plan;
};

Planned Plan(const char* config, int32_t n_stages, std::string_view gpu, int32_t context = 0) {
  TempDir dir;
  dir.Write("config.json", config);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, n_stages);
  ServingPlan plan = PlanServing(spec, facts, {.gpu = *FindGpu(gpu), .context_tokens = context});
  return {std::move(facts), std::move(plan)};
}

TEST_CASE("a plan's KV cache is as large as on a server with that GPU") {
  const ServingPlan plan = Plan(kMistral7B, 1, "h200").plan;
  REQUIRE(plan.fits());
  CHECK_THAT(double(plan.n_kv_tokens()), WithinRel(902'320.0, 0.02));  // measured
  CHECK(plan.n_sequences == plan.n_kv_tokens() / 32768);
  // The lower bound reads 14.2 GB at the peak of 4.8 TB/s.
  CHECK(plan.one_ms_a_token > 14.2 / 4.8);
  CHECK(plan.one_ms_a_token < 2 * 14.2 / 4.8);
}

TEST_CASE("more stages give more KV cache and throughput, but a single request waits for hops") {
  const Planned one = Plan(kMistral7B, 1, "H200", 4096), four = Plan(kMistral7B, 4, "H200", 4096);
  REQUIRE(four.plan.stages.size() == 4);
  CHECK(four.plan.n_kv_tokens() > 4 * one.plan.n_kv_tokens());
  CHECK(four.plan.batch_tokens_per_s > 2 * one.plan.batch_tokens_per_s);
  CHECK(four.plan.prompt_tokens_per_s > 3 * one.plan.prompt_tokens_per_s);
  CHECK(four.plan.one_ms_a_token > one.plan.one_ms_a_token);
  CHECK_THAT(ToText(four.plan, four.facts), ContainsSubstring("4 stages on H200"));
}

TEST_CASE("an FP8 cache holds nearly twice as many tokens") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const auto plan = [&](v1::KvDType kv_dtype) {
    v1::LoadConfig config;
    config.set_kv_dtype(kv_dtype);
    const check::ModelFacts facts = *check::DescribeModel(spec, config, {}, 1);
    ServingPlan planned = PlanServing(spec, facts, {.gpu = *FindGpu("H200")});
    const std::string text = ToText(planned, facts);
    CHECK((text.find("tokens in all, in fp8") != text.npos) == (kv_dtype == v1::KV_DTYPE_FP8));
    return planned;
  };
  const ServingPlan plain = plan(v1::KV_DTYPE_AUTO), fp8 = plan(v1::KV_DTYPE_FP8);
  CHECK(fp8.stages[0].facts.weights_bytes == plain.stages[0].facts.weights_bytes);
  // 128 numbers of 2 bytes, or of 1 byte with a scale of 2
  CHECK_THAT(double(fp8.n_kv_tokens()), WithinRel(double(plain.n_kv_tokens()) * 256 / 130, 0.01));
}

TEST_CASE("hidden states that travel as bfloat16 take a buffer on several stages") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const auto step_bytes = [&](uint32_t n_stages, v1::HiddenDType hidden_dtype) {
    const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, n_stages);
    return PlanServing(spec, facts, {.gpu = *FindGpu("H200"), .hidden_dtype = hidden_dtype})
        .stages[0]
        .step_bytes;
  };
  const auto float32 = v1::HIDDEN_DTYPE_FLOAT32, bfloat16 = v1::HIDDEN_DTYPE_BFLOAT16;
  CHECK(step_bytes(1, bfloat16) == step_bytes(1, float32));
  CHECK(step_bytes(2, bfloat16) == step_bytes(2, float32) + 8192 * 4096 * 2);
}

TEST_CASE("the plan says what does not fit and how much is missing") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  v1::LoadConfig float32;
  float32.set_dtype(v1::DTYPE_FLOAT32);
  const check::ModelFacts facts = *check::DescribeModel(spec, float32, {}, 1);
  const ServingPlan plan = PlanServing(spec, facts, {.gpu = *FindGpu("A10")});
  CHECK_FALSE(plan.fits());
  CHECK_THAT(ToText(plan, facts),
             ContainsSubstring(" short") && ContainsSubstring("It does not fit: stage 0"));
  CHECK(ToJson(plan).at("fits").as_bool() == false);
}

TEST_CASE("layers with a window have their own KV pools, as in the router") {
  TempDir dir;
  dir.Write("config.json", kGemma3);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  REQUIRE(spec.kv_groups.size() == 2);
  const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, 2);
  const ServingPlan plan = PlanServing(spec, facts, {.gpu = *FindGpu("H200")});
  std::vector<router::StageKvMemory> memory;
  for (const StagePlan& stage : plan.stages) {
    memory.push_back({"", static_cast<uint64_t>(stage.kv_bytes), stage.block_bytes});
  }
  const router::KvPlan served = *router::SizeKv(spec.kv_groups, memory,
                                                {.max_sequences = 1024,
                                                 .max_batched_tokens = 8192,
                                                 .max_prefill_chunk = 8192,
                                                 .max_model_len = 131072});
  CHECK(plan.n_kv_blocks == static_cast<int64_t>(served.kv_blocks));
  // Only one layer in six has full attention, so there is room for far more tokens than if all had
  // it.
  CHECK(plan.n_kv_tokens() > 3'000'000);
  CHECK(plan.n_sequences == plan.n_kv_blocks / (131072 / kKvBlockTokens));
}

TEST_CASE("states of recurrent layers take a part of the KV memory, as in the router") {
  TempDir dir;
  dir.Write("config.json", kQwen3Next);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, 2);
  const ServingPlan plan =
      PlanServing(spec, facts, {.gpu = *FindGpu("H200"), .context_tokens = 8192});
  std::vector<router::StageKvMemory> memory;
  for (const StagePlan& stage : plan.stages) {
    memory.push_back({.name = "",
                      .kv_bytes = static_cast<uint64_t>(stage.kv_bytes),
                      .block_bytes = stage.block_bytes,
                      .state_bytes = facts.state_bytes / 2});
  }
  const router::KvPlan served = *router::SizeKv(spec.kv_groups, memory,
                                                {.max_sequences = 1024,
                                                 .max_batched_tokens = 8192,
                                                 .max_prefill_chunk = 8192,
                                                 .max_model_len = 8192});
  CHECK(plan.n_kv_blocks == static_cast<int64_t>(served.kv_blocks));
  // Their states take half of the memory.
  CHECK(served.max_sequences < 1024);
  CHECK(plan.options.max_sequences == served.max_sequences);
  CHECK(plan.n_sequences <= served.max_sequences);
}

TEST_CASE("without a prefix cache, recurrent layers have room for more sequences") {
  TempDir dir;
  dir.Write("config.json", kQwen3Next);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, 2);
  const auto most = [&](bool saves_states) {
    return PlanServing(spec, facts,
                       {.gpu = *FindGpu("H200"),
                        .max_sequences = 4096,
                        .context_tokens = 512,
                        .saves_states = saves_states})
        .options.max_sequences;
  };
  CHECK(most(false) / 2 == most(true));
}

TEST_CASE("answers take longer if their prompts are computed, too") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, 1);
  const auto plan = [&](int32_t context, int32_t prompt) {
    return PlanServing(
        spec, facts, {.gpu = *FindGpu("H200"), .context_tokens = context, .prompt_tokens = prompt});
  };
  // Both have 512 tokens on average.
  const ServingPlan alone = plan(1024, 0), with_prompts = plan(768, 256);
  const double prompts = 0.5 / with_prompts.prompt_tokens_per_s;  // per token of an answer
  CHECK_THAT(1 / with_prompts.batch_tokens_per_s,
             WithinRel(1 / alone.batch_tokens_per_s + prompts, 1e-9));
  CHECK(with_prompts.prompt_tokens_per_s < alone.prompt_tokens_per_s);  // attention
}

TEST_CASE("a plan promises no more sequences than can run at once") {
  CHECK(Plan(kGemma3, 4, "H200", 4096).plan.n_sequences == 1024);
}

TEST_CASE("a given KV cache size must fit in the remaining memory") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, 1);
  const auto plan = [&](uint64_t gib) {
    return PlanServing(spec, facts, {.gpu = *FindGpu("H100"), .kv_memory_bytes = gib << 30});
  };
  CHECK(plan(16).n_kv_tokens() == (int64_t{16} << 30) / (2 * 8 * 128 * 32 * 2));
  CHECK_FALSE(plan(70).fits());
}

TEST_CASE("a step has scratch for quantized weights and inputs, as large as the widest matrix") {
  TempDir dir;
  dir.Write("config.json", kMistral7B);
  const ModelSpec spec = *ReadModelSpec(dir.path());
  const auto step_bytes = [&](std::optional<Code> code, std::string_view gpu) {
    const check::ModelFacts facts =
        *check::DescribeModel(spec, {}, QuantizedTo(code, spec), 1, /*on_gpus=*/true);
    return PlanServing(spec, facts, {.gpu = *FindGpu(gpu)}).stages[0].step_bytes;
  };
  const uint64_t expanded = sizeof(uint16_t) * 2 * 14336 * 4096;
  CHECK(step_bytes(Code::kInt4, "H200") == step_bytes({}, "H200") + expanded);
  CHECK(step_bytes(Code::kFp8, "A100-80GB") == step_bytes({}, "A100-80GB") + expanded);
  // Hopper multiplies FP8. It needs codes and scales of 4096 rows of inputs.
  CHECK(step_bytes(Code::kFp8, "H200") == step_bytes({}, "H200") + uint64_t{4096} * (14336 + 4));
}

TEST_CASE("GPUs other than Hopper expand some experts at a time for many rows") {
  const ModelSpec spec = *ReadModelSpec(STAGECOACH_SHAPES "/gpt-oss-20b");
  const auto step_bytes = [&](int32_t max_batched_tokens, std::string_view gpu) {
    const check::ModelFacts facts = *check::DescribeModel(spec, {}, {}, 1, /*on_gpus=*/true);
    return PlanServing(spec, facts,
                       {.gpu = *FindGpu(gpu), .max_batched_tokens = max_batched_tokens})
        .stages[0]
        .step_bytes;
  };
  const uint64_t of_expert = sizeof(uint16_t) * 2 * 2880 * 2880;
  CHECK(step_bytes(8192, "A100-80GB") == step_bytes(8192, "H100") + 15 * of_expert);
  CHECK(step_bytes(512, "A100-80GB") == step_bytes(512, "H100"));
}

TEST_CASE("the scratch of a mixture-of-experts step covers every expert that its rows use") {
  const ServingPlan plan = Plan(kMixtral, 2, "H200").plan;
  // The up projection, its activation and the output, in float32.
  const uint64_t of_pair = (3 * 14336 + 4096) * sizeof(float);
  for (const StagePlan& stage : plan.stages) CHECK(stage.step_bytes > 8192 * 2 * of_pair);
}

TEST_CASE("a row of a mixture-of-experts model reads only the experts that it uses") {
  const ServingPlan plan = Plan(kMixtral, 2, "H200").plan;
  for (const StagePlan& stage : plan.stages) {
    CHECK_THAT(BytesRead(stage.work, 1) / BytesRead(stage.work, 4096), WithinRel(0.277, 0.03));
  }
}

TEST_CASE("a row reads nothing of the table of its layers' inputs but its own numbers") {
  const ServingPlan plan = Plan(kGemma4E2B, 1, "H200", 8192).plan;
  const StagePlan& stage = plan.stages.front();
  const double table = 2.0 * 262144 * 35 * 256;  // bytes
  CHECK_THAT(BytesRead(stage.work, 1), WithinRel(stage.facts.weights_bytes - table, 0.01));
  // The step's rows have inputs of all layers beside their hidden states.
  CHECK(stage.step_bytes > 8192 * (2 * 35 * 256) * sizeof(float));
}

}  // namespace
}  // namespace stagecoach::plan
