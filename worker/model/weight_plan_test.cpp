#include "worker/model/weight_plan.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "common/temp_dir.h"

namespace stagecoach::worker {
namespace {

ModelSpec Spec(std::string_view more, std::string_view architecture = "LlamaForCausalLM") {
  TempDir dir;
  dir.Write("config.json", R"({"architectures": [")" + std::string(architecture) + R"("], )" +
                               std::string(more) +
                               R"("vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64})");
  auto spec = ReadModelSpec(dir.path());
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *spec;
}

const TensorRequest* Find(const WeightPlan& plan, std::string_view name) {
  const auto found = std::find_if(plan.requests.begin(), plan.requests.end(),
                                  [&](const TensorRequest& r) { return r.name == name; });
  return found == plan.requests.end() ? nullptr : &*found;
}

TEST_CASE("a middle stage requests only its own layers, with q, k and v fused") {
  const ModelSpec spec = Spec(R"("attention_bias": true,)");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.first_layer = 1, .n_layers = 1}, spec, &weights);
  REQUIRE(weights.layers.size() == 1);
  for (const TensorRequest& request : plan.requests) {
    CHECK(request.name.find("model.layers.1.") == 0);
  }
  CHECK(plan.matrices.size() == 4);
  const MatrixPlan& qkv = plan.matrices[0];
  CHECK(qkv.target == &weights.layers[0].qkv);
  CHECK(qkv.rows == 16 + 8 + 8);
  CHECK(qkv.cols == 16);
  REQUIRE(qkv.parts.size() == 3);
  CHECK(plan.requests[qkv.parts[1].request].name == "model.layers.1.self_attn.k_proj.weight");
  CHECK(qkv.parts[1].first_row == 16);
  CHECK(qkv.parts[2].first_row == 24);
  const TensorRequest* const bias = Find(plan, "model.layers.1.self_attn.o_proj.bias");
  REQUIRE(bias != nullptr);
  CHECK(bias->is_vector);
  CHECK(bias->cols == 16);
  CHECK(Find(plan, "model.layers.1.mlp.down_proj.bias") == nullptr);
}

TEST_CASE("latent attention takes K, transposed, and V of each head out of one tensor") {
  const ModelSpec spec = Spec(R"("kv_lora_rank": 32, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8,
      "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 16, )",
                              "DeepseekV2ForCausalLM");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.n_layers = 1}, spec, &weights);
  const TensorRequest* const up = Find(plan, "model.layers.0.self_attn.kv_b_proj.weight");
  REQUIRE(up != nullptr);
  CHECK((up->rows == 4 * (24 + 16) && up->cols == 32 && up->is_split && !up->is_linear));
  const auto of = [&](const kernels::Matrix& target) {
    return *std::find_if(plan.matrices.begin(), plan.matrices.end(),
                         [&](const MatrixPlan& matrix) { return matrix.target == &target; });
  };
  const MatrixPlan keys = of(weights.layers[0].latent.keys_transposed);
  CHECK((keys.rows == 4 * 32 && keys.cols == 24 && keys.parts.size() == 4));
  const WeightPart& k = keys.parts[1];
  CHECK((k.first_row == 32 && k.from_row == 40 && k.n_rows == 24 && k.transposed));
  const MatrixPlan values = of(weights.layers[0].latent.values);
  CHECK((values.rows == 4 * 16 && values.cols == 32 && values.parts.size() == 4));
  const WeightPart& v = values.parts[1];
  CHECK((v.first_row == 16 && v.from_row == 64 && v.n_rows == 16 && !v.transposed));
}

TEST_CASE("the end stages request the embedding, the final norm and the head") {
  const ModelSpec untied = Spec("");
  const ModelSpec tied = Spec(R"("tie_word_embeddings": true,)");
  const auto names = [](const ModelSpec& spec, bool is_first, bool is_last) {
    StageWeights weights;
    const WeightPlan plan =
        PlanWeights({.n_layers = 1, .is_first = is_first, .is_last = is_last}, spec, &weights);
    return std::vector<bool>{Find(plan, "model.embed_tokens.weight") != nullptr,
                             Find(plan, "model.norm.weight") != nullptr,
                             Find(plan, "lm_head.weight") != nullptr};
  };
  CHECK(names(untied, true, false) == std::vector<bool>{true, false, false});
  CHECK(names(untied, false, true) == std::vector<bool>{false, true, true});
  CHECK(names(tied, false, true) == std::vector<bool>{true, true, false});
  CHECK(names(tied, true, true) == std::vector<bool>{true, true, false});
}

TEST_CASE("experts replace the MLP, with gate and up of each as one matrix") {
  const ModelSpec spec =
      Spec(R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,
              "mlp_only_layers": [0],)",
           "Qwen3MoeForCausalLM");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.n_layers = 2, .is_first = true}, spec, &weights);
  CHECK(Find(plan, "model.layers.0.mlp.gate_proj.weight") != nullptr);
  CHECK(Find(plan, "model.layers.0.mlp.gate.weight") == nullptr);
  CHECK(Find(plan, "model.layers.1.mlp.gate_proj.weight") == nullptr);
  CHECK(Find(plan, "model.layers.1.mlp.gate.weight")->rows == 4);
  CHECK(weights.layers[0].expert_up.empty());
  REQUIRE(weights.layers[1].expert_up.size() == 4);
  const auto matrix = std::find_if(
      plan.matrices.begin(), plan.matrices.end(),
      [&](const MatrixPlan& m) { return m.target == &weights.layers[1].expert_up[3]; });
  REQUIRE(matrix != plan.matrices.end());
  CHECK(matrix->rows == 16);
  CHECK(std::count_if(plan.matrices.begin(), plan.matrices.end(),
                      [](const MatrixPlan& m) { return m.is_expert; }) == 2 * 4);
  REQUIRE(matrix->parts.size() == 2);
  CHECK(plan.requests[matrix->parts[0].request].name ==
        "model.layers.1.mlp.experts.3.gate_proj.weight");
  CHECK(matrix->parts[1].first_row == 8);
  CHECK(Find(plan, "model.layers.1.mlp.experts.0.down_proj.weight")->cols == 8);
}

TEST_CASE("experts one after another in a tensor: each request names its first row") {
  ModelSpec spec =
      Spec(R"("num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 8,)",
           "Qwen3MoeForCausalLM");
  spec.names.expert_gate = "blk.{}.ffn_gate_exps";
  spec.names.expert_up = "blk.{}.ffn_up_exps";
  spec.names.expert_down = "blk.{}.ffn_down_exps";
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.first_layer = 1, .n_layers = 1}, spec, &weights);
  const auto matrix = std::find_if(
      plan.matrices.begin(), plan.matrices.end(),
      [&](const MatrixPlan& m) { return m.target == &weights.layers[0].expert_up[3]; });
  REQUIRE(matrix != plan.matrices.end());
  CHECK(matrix->rows == 16);
  REQUIRE(matrix->parts.size() == 2);
  for (const WeightPart& part : matrix->parts) {
    const TensorRequest& request = plan.requests[part.request];
    CHECK(request.rows == 8);
    CHECK(request.shape == std::vector<int64_t>{4, 8, 16});
    CHECK(request.first_row == 3 * 8);
  }
  CHECK(plan.requests[matrix->parts[1].request].name == "blk.1.ffn_up_exps.weight");
  CHECK(Find(plan, "blk.1.ffn_down_exps.weight")->shape == std::vector<int64_t>{4, 16, 8});
}

TEST_CASE("experts in tensors of all of them: each request names its expert and turn") {
  const ModelSpec spec = Spec(R"("num_local_experts": 3, "num_experts_per_tok": 2, "head_dim": 4,
      "rope_parameters": {"rope_type": "default"}, "quantization_config": {"quant_method": "mxfp4"},)",
                              "GptOssForCausalLM");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.n_layers = 1, .is_first = true}, spec, &weights);
  const auto matrix = std::find_if(
      plan.matrices.begin(), plan.matrices.end(),
      [&](const MatrixPlan& m) { return m.target == &weights.layers[0].expert_up[2]; });
  REQUIRE(matrix != plan.matrices.end());
  CHECK(matrix->rows == 48);
  CHECK(matrix->is_expert);
  REQUIRE(matrix->parts.size() == 2);
  const TensorRequest& up = plan.requests[matrix->parts[1].request];
  CHECK(up.name == "model.layers.0.mlp.experts.gate_up_proj");
  CHECK(up.rows == 24);
  CHECK((up.place.expert == 2 && up.place.n_experts == 3));
  CHECK((up.place.turn == 1 && up.place.n_turns == 2));
  CHECK(ImpliedEncoding(up) == MxFp4Encoding());
  CHECK_FALSE(ImpliedEncoding(*Find(plan, "model.layers.0.self_attn.q_proj.weight")));
  CHECK(Find(plan, "model.layers.0.mlp.experts.down_proj_bias")->cols == 16);
  CHECK(Find(plan, "model.layers.0.mlp.router.bias")->cols == 3);
  CHECK(Find(plan, "model.layers.0.self_attn.sinks")->cols == 4);
  const auto biases = std::find_if(
      plan.vectors.begin(), plan.vectors.end(),
      [&](const VectorPlan& v) { return v.target == &weights.layers[0].expert_up_bias; });
  REQUIRE(biases != plan.vectors.end());
  CHECK(biases->n == 3 * 48);
}

TEST_CASE("tensors that are stored fused are requested fused") {
  const ModelSpec phi = Spec("", "Phi3ForCausalLM");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.n_layers = 1, .is_first = true}, phi, &weights);
  CHECK(Find(plan, "model.layers.0.self_attn.qkv_proj.weight")->rows == 16 + 8 + 8);
  CHECK(Find(plan, "model.layers.0.mlp.gate_up_proj.weight")->rows == 48);
  CHECK(Find(plan, "model.layers.0.self_attn.q_proj.weight") == nullptr);
}

TEST_CASE("Llama 4: reordered heads where they rotate, experts by name or in one tensor") {
  const ModelSpec spec = Spec(R"("head_dim": 4, "num_local_experts": 3, "no_rope_layers": [1, 0, 1],
      "interleave_moe_layer_step": 2, "intermediate_size_mlp": 32,)",
                              "Llama4ForCausalLM");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.n_layers = 3, .is_first = true}, spec, &weights);
  CHECK(Find(plan, "model.layers.0.self_attn.q_proj.weight")->interleaved_head == 4);
  CHECK(Find(plan, "model.layers.0.self_attn.k_proj.weight")->interleaved_head == 4);
  CHECK(Find(plan, "model.layers.0.self_attn.v_proj.weight")->interleaved_head == 0);
  CHECK(Find(plan, "model.layers.1.self_attn.q_proj.weight")->interleaved_head == 0);
  const auto norm = [&](const kernels::Buffer& target) {
    return std::find_if(plan.vectors.begin(), plan.vectors.end(),
                        [&](const VectorPlan& v) { return v.target == &target; });
  };
  REQUIRE(norm(weights.layers[0].k_norm) != plan.vectors.end());
  CHECK(norm(weights.layers[0].k_norm)->parts.empty());
  CHECK(norm(weights.layers[0].k_norm)->factor == 1);
  CHECK(norm(weights.layers[1].k_norm) == plan.vectors.end());

  CHECK(Find(plan, "model.layers.0.feed_forward.up_proj.weight")->rows == 32);
  const TensorRequest& up = *Find(plan, "model.layers.1.feed_forward.experts.2.up_proj.weight");
  CHECK(up.fused_name == "model.layers.1.feed_forward.experts.gate_up_proj");
  CHECK((up.fused_place.expert == 2 && up.fused_place.n_experts == 3));
  CHECK((up.fused_place.turn == 1 && up.fused_place.n_turns == 2 && !up.fused_place.in_turns));
  const TensorRequest& down = *Find(plan, "model.layers.1.feed_forward.experts.0.down_proj.weight");
  CHECK((down.fused_place.n_turns == 1 && down.rows == 16 && down.cols == 24));
  CHECK(Find(plan, "model.layers.1.feed_forward.shared_expert.up_proj.weight")->rows == 24);
}

TEST_CASE("a matrix that a device would not keep quantized is not quantized") {
  const auto is_linear = [](const ModelSpec& spec, std::string_view name) {
    StageWeights weights;
    const WeightPlan plan = PlanWeights({.first_layer = 0, .n_layers = 1}, spec, &weights);
    return Find(plan, "model.layers.0." + std::string(name) + ".weight")->is_linear;
  };
  ModelSpec spec = Spec("");  // gate and up have 24 rows each; q, k and v have 16, 8 and 8
  CHECK_FALSE(is_linear(spec, "mlp.gate_proj"));
  CHECK_FALSE(is_linear(spec, "mlp.up_proj"));
  CHECK_FALSE(is_linear(spec, "self_attn.q_proj"));
  CHECK(is_linear(spec, "mlp.down_proj"));
  spec = Spec(R"("head_dim": 16,)");
  CHECK(is_linear(spec, "self_attn.v_proj"));
}

TEST_CASE("Nemotron-H: a layer has the weights of its one part") {
  const ModelSpec spec = Spec(R"("head_dim": 4, "hybrid_override_pattern": "M*E", "n_groups": 2,
      "mamba_num_heads": 4, "mamba_head_dim": 3, "ssm_state_size": 5, "n_routed_experts": 3,
      "moe_intermediate_size": 8, "moe_shared_expert_intermediate_size": 12,)",
                              "NemotronHForCausalLM");
  StageWeights weights;
  const WeightPlan plan = PlanWeights({.n_layers = 3, .is_first = true}, spec, &weights);
  CHECK(Find(plan, "backbone.layers.0.mixer.in_proj.weight")->rows == 2 * 12 + 2 * 10 + 4);
  CHECK(Find(plan, "backbone.layers.0.mixer.conv1d.bias")->cols == 32);
  CHECK(Find(plan, "backbone.layers.0.mixer.D")->cols == 4);
  CHECK(Find(plan, "backbone.layers.0.mixer.norm.weight")->cols == 12);
  CHECK(std::count_if(plan.requests.begin(), plan.requests.end(), [](const TensorRequest& r) {
          return r.name.ends_with(".norm.weight") && !r.name.ends_with(".mixer.norm.weight");
        }) == 3);
  CHECK(Find(plan, "backbone.layers.1.mixer.q_proj.weight")->rows == 16);
  const TensorRequest& up = *Find(plan, "backbone.layers.2.mixer.experts.1.up_proj.weight");
  CHECK((up.rows == 8 && up.cols == 16));
  CHECK(weights.layers[2].expert_up.size() == 3);
  CHECK(Find(plan, "backbone.layers.2.mixer.shared_experts.up_proj.weight")->rows == 12);
  CHECK(Find(plan, "backbone.layers.2.mixer.gate.e_score_correction_bias")->cols == 3);
}

}  // namespace
}  // namespace stagecoach::worker
