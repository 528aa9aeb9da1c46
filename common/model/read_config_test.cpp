#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "common/model/model_spec.h"
#include "common/temp_dir.h"

namespace stagecoach {
namespace {

using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

absl::StatusOr<ModelSpec> Read(std::string_view config) {
  TempDir dir;
  dir.Write("config.json", config);
  return ReadModelSpec(dir.path());
}

ModelSpec MustRead(std::string_view config) {
  auto spec = Read(config);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *std::move(spec);
}

// Returns a config of `architecture` with usual sizes, plus the keys in `more` ("\"key\": value,").
std::string Config(std::string_view architecture, std::string_view more) {
  return std::string(R"({"architectures": [")") + std::string(architecture) + R"("], )" +
         std::string(more) +
         R"("vocab_size": 512, "hidden_size": 128, "intermediate_size": 160, "num_hidden_layers": 4,
            "num_attention_heads": 4, "max_position_embeddings": 512})";
}

std::string ErrorOf(std::string_view config, absl::StatusCode code) {
  const absl::Status status = Read(config).status();
  CHECK(status.code() == code);
  return std::string(status.message());
}

TEST_CASE("Llama: absent head_dim, kv heads and tie_word_embeddings") {
  const ModelSpec spec = MustRead(Config("LlamaForCausalLM", R"("torch_dtype": "bfloat16",)"));
  CHECK(spec.architecture == "LlamaForCausalLM");
  CHECK(spec.n_layers() == 4);
  CHECK(spec.head_dim == 32);
  CHECK(spec.n_kv_heads == 4);
  CHECK_FALSE(spec.tied_embedding);
  CHECK(spec.stored_dtype == DType::kBF16);
  CHECK(spec.attn_scale == Approx(1.0 / std::sqrt(32.0)));
  CHECK(spec.ropes.size() == 1);
  CHECK(spec.ropes[0].theta == 10000.0);
  CHECK(spec.kv_groups.size() == 1);
  CHECK(spec.kv_groups[0].window == 0);
  CHECK(spec.names.gate == "model.layers.{}.mlp.gate_proj");
}

TEST_CASE("RoPE scaling in both spellings") {
  const char* const llama3_old =
      R"("rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},)";
  const char* const llama3_new =
      R"("rope_parameters": {"rope_theta": 500000.0, "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": 64},)";
  for (const char* spelling : {llama3_old, llama3_new}) {
    const ModelSpec spec = MustRead(Config("LlamaForCausalLM", spelling));
    CHECK(spec.ropes[0].theta == 500000.0);
    CHECK(spec.ropes[0].scaling == RopeScaling::kLlama3);
    CHECK(spec.ropes[0].factor == 8.0);
    CHECK(spec.ropes[0].original_max_positions == 64);
  }
  for (const char* spelling :
       {R"("rope_scaling": {"type": "linear", "factor": 4.0},)",
        R"("rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 4},)",
        R"("rope_parameters": {"rope_theta": 10000.0, "rope_type": "linear", "factor": 4.0},)"}) {
    const ModelSpec spec = MustRead(Config("LlamaForCausalLM", spelling));
    CHECK(spec.ropes[0].theta == 10000.0);
    CHECK(spec.ropes[0].scaling == RopeScaling::kLinear);
    CHECK(spec.ropes[0].factor == 4.0);
  }
}

TEST_CASE("Llama with biases") {
  const ModelSpec spec = MustRead(Config(
      "LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true, "dtype": "float16",)"));
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.stored_dtype == DType::kF16);
}

TEST_CASE("Mistral: window, no window, and the default of a missing key") {
  const auto window = [](std::string_view more) {
    return MustRead(Config("MistralForCausalLM",
                           std::string(R"("num_key_value_heads": 2,)") + std::string(more)))
        .kv_groups.at(0)
        .window.size;
  };
  CHECK(window(R"("sliding_window": 16,)") == 16);
  CHECK(window(R"("sliding_window": null,)") == 0);
  CHECK(window(R"("sliding_window": 512,)") == 0);  // all positions
  CHECK(window("") == 0);                           // 4096, above 512
  const ModelSpec spec =
      MustRead(Config("MistralForCausalLM", R"("head_dim": 64, "num_key_value_heads": 2,)"));
  CHECK(spec.head_dim == 64);
}

TEST_CASE("Gemma-2: caps, layer windows, scales") {
  const char* const types =
      R"("layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],)";
  for (const char* how : {types, ""}) {
    const ModelSpec spec = MustRead(Config(
        "Gemma2ForCausalLM",
        std::string(how) + R"("sliding_window": 16, "query_pre_attn_scalar": 48, "head_dim": 64,
        "attn_logit_softcapping": 5.0, "final_logit_softcapping": null,)"));
    CHECK(spec.norm == NormKind::kRmsPlusOne);
    CHECK(spec.norm_placement == NormPlacement::kBeforeAndAfter);
    CHECK(spec.tied_embedding);
    CHECK(spec.activation == Activation::kGeluTanh);
    CHECK(spec.embed_scale == Approx(std::sqrt(128.0)));
    CHECK(spec.attn_scale == Approx(1.0 / std::sqrt(48.0)));
    CHECK(spec.attn_softcap == 5.0f);
    CHECK(spec.logit_softcap == 0.0f);
    REQUIRE(spec.kv_groups.size() == 2);
    CHECK(spec.kv_groups[0].window == 16);
    CHECK(spec.kv_groups[1].window == 0);
    CHECK(spec.layers[2].kv_group == 0);
    CHECK(spec.layers[3].kv_group == 1);
    CHECK(spec.names.mlp_norm == "model.layers.{}.pre_feedforward_layernorm");
  }
  CHECK(MustRead(Config("Gemma2ForCausalLM", "")).logit_softcap == 30.0f);
}

TEST_CASE("Gemma-3: RoPE by layer type in both spellings") {
  for (
      const char* spelling :
      {R"("sliding_window_pattern": 3, "rope_theta": 2000000.0, "rope_local_base_freq": 20000.0,
           "rope_scaling": {"rope_type": "linear", "factor": 8.0},)",
       R"("layer_types": ["sliding_attention", "sliding_attention", "full_attention", "sliding_attention"],
           "rope_parameters": {
             "full_attention": {"rope_theta": 2000000.0, "rope_type": "linear", "factor": 8.0},
             "sliding_attention": {"rope_theta": 20000.0, "rope_type": "default"}},)"}) {
    const ModelSpec spec =
        MustRead(Config("Gemma3ForCausalLM", std::string(spelling) + R"("sliding_window": 16,)"));
    CHECK(spec.qk_norm);
    REQUIRE(spec.ropes.size() == 2);
    CHECK(spec.ropes[0].theta == 2e6);
    CHECK(spec.ropes[0].scaling == RopeScaling::kLinear);
    CHECK(spec.ropes[1].theta == 2e4);
    CHECK(spec.ropes[1].scaling == RopeScaling::kNone);
    CHECK(spec.layers[2].rope == 0);
    CHECK(spec.layers[3].rope == 1);
    CHECK(spec.kv_groups[spec.layers[2].kv_group].window == 0);
    CHECK(spec.kv_groups[spec.layers[3].kv_group].window == 16);
  }
}

TEST_CASE("Gemma-3 with a vision tower: the text part with its class's defaults") {
  const ModelSpec spec =
      MustRead(R"({"architectures": ["Gemma3ForConditionalGeneration"], "torch_dtype": "bfloat16",
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024,
                    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})");
  CHECK(spec.vocab_size == 262208);
  CHECK(spec.n_heads == 8);
  CHECK(spec.n_kv_heads == 4);
  CHECK(spec.head_dim == 256);
  CHECK(spec.stored_dtype == DType::kBF16);
  CHECK(spec.ropes[0].theta == 1e6);
  CHECK(spec.ropes[0].factor == 8.0);
  CHECK(spec.layers[5].rope == 0);
  CHECK(spec.layers[4].rope == 1);
}

TEST_CASE("OPT") {
  const char* const config =
      R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50272, "hidden_size": 768,
    "ffn_dim": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "max_position_embeddings": 2048,
    "activation_function": "relu", "word_embed_proj_dim": 768, "do_layer_norm_before": true, "torch_dtype": "float16"})";
  const ModelSpec spec = MustRead(config);
  CHECK(spec.norm == NormKind::kLayerNorm);
  CHECK(spec.head_dim == 64);
  CHECK(spec.learned_positions);
  CHECK(spec.position_offset == 2);
  CHECK(spec.ropes.empty());
  CHECK_FALSE(spec.gated_mlp);
  CHECK(spec.tied_embedding);
  CHECK(spec.qkv_bias);
  CHECK(spec.names.gate.empty());
}

TEST_CASE("opt-350m: norms after the blocks, a narrower embedding, no final norm") {
  const ModelSpec spec =
      MustRead(R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50272, "hidden_size": 1024,
    "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "word_embed_proj_dim": 512,
    "do_layer_norm_before": false})");
  CHECK(spec.norm_placement == NormPlacement::kAfterSum);
  CHECK(spec.embed_size == 512);
  CHECK(spec.names.project_in == "model.decoder.project_in");
  CHECK(spec.names.final_norm.empty());
}

TEST_CASE("GPT-2") {
  const ModelSpec spec = MustRead(
      R"({"model_type": "gpt2", "vocab_size": 50257, "n_embd": 768, "n_head": 12, "n_layer": 12,
          "n_positions": 1024, "n_inner": null})");
  CHECK(spec.architecture == "GPT2LMHeadModel");
  CHECK(spec.intermediate_size == 3072);
  CHECK(spec.activation == Activation::kGeluTanh);
  CHECK(spec.transposed_linears);
  CHECK(spec.position_offset == 0);
  CHECK(spec.embed_size == 768);
  CHECK(spec.names.qkv == "transformer.h.{}.attn.c_attn");
}

TEST_CASE("Gemma: early configs say gelu but mean the tanh approximation") {
  for (const char* how : {R"("hidden_act": "gelu",)", R"("hidden_activation": null,)", ""}) {
    const ModelSpec spec = MustRead(Config("GemmaForCausalLM", how));
    CHECK(spec.activation == Activation::kGeluTanh);
    CHECK(spec.norm_placement == NormPlacement::kBefore);
    CHECK(spec.attn_scale == Approx(1.0 / 16));
    CHECK(spec.names.mlp_norm == "model.layers.{}.post_attention_layernorm");
  }
}

TEST_CASE("Qwen2: only q, k and v have biases") {
  const ModelSpec spec = MustRead(Config("Qwen2ForCausalLM", ""));
  CHECK(spec.qkv_bias);
  CHECK_FALSE(spec.o_bias);
  CHECK_FALSE(spec.mlp_bias);
  CHECK_FALSE(spec.qk_norm);
}

TEST_CASE("Qwen3: windows only with use_sliding_window, by max_window_layers or layer_types") {
  const auto windows = [](std::string_view more) {
    const ModelSpec spec = MustRead(
        Config("Qwen3ForCausalLM", std::string(R"("sliding_window": 16,)") + std::string(more)));
    std::vector<int32_t> result;
    result.reserve(spec.layers.size());
    for (const LayerSpec& layer : spec.layers) {
      result.push_back(spec.kv_groups[static_cast<size_t>(layer.kv_group)].window.size);
    }
    return result;
  };
  using Windows = std::vector<int32_t>;
  CHECK(windows(R"("max_window_layers": 1,)") == Windows{0, 0, 0, 0});
  CHECK(windows(R"("use_sliding_window": true, "max_window_layers": 3,)") == Windows{0, 0, 0, 16});
  CHECK(windows(R"("use_sliding_window": true, "layer_types": ["full_attention",
      "sliding_attention", "full_attention", "full_attention"],)") == Windows{0, 16, 0, 0});
}

TEST_CASE("experts: in every layer of Mixtral, in some layers of Qwen3-MoE") {
  const ModelSpec mixtral = MustRead(Config("MixtralForCausalLM", R"("num_key_value_heads": 2,)"));
  CHECK(mixtral.experts.n_experts == 8);
  CHECK(mixtral.experts.n_used == 2);
  CHECK(mixtral.experts.intermediate_size == 160);
  CHECK(mixtral.experts.weights_over_used);
  CHECK(mixtral.mlp_width(mixtral.layers.front()) == 0);

  const ModelSpec qwen =
      MustRead(Config("Qwen3MoeForCausalLM",
                      R"("num_experts": 16, "num_experts_per_tok": 4, "moe_intermediate_size": 24,
                "decoder_sparse_step": 2, "mlp_only_layers": [3],)"));
  CHECK(qwen.experts.n_experts == 16);
  CHECK(qwen.experts.intermediate_size == 24);
  CHECK_FALSE(qwen.experts.weights_over_used);
  for (int32_t i = 0; i < 4; ++i) {
    CHECK(qwen.layers[static_cast<size_t>(i)].has_experts == (i == 1));
  }
  CHECK_THAT(ErrorOf(Config("MixtralForCausalLM",
                            R"("num_local_experts": 2, "num_experts_per_tok": 3,
                               "num_key_value_heads": 2,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("num_experts_per_tok: 3 is more than the model's 2 experts"));
}

TEST_CASE("Qwen3-Next: recurrent layers by interval, gates, experts beside a shared one") {
  const ModelSpec spec = MustRead(
      Config("Qwen3NextForCausalLM",
             R"("rope_theta": 10000000, "partial_rotary_factor": 0.25, "mlp_only_layers": [1],)"));
  for (size_t i = 0; i < 4; ++i) {
    CHECK(spec.layers[i].is_recurrent == (i < 3));
    CHECK(spec.layers[i].has_experts == (i != 1));
  }
  CHECK(spec.kv_groups.size() == 1);
  CHECK(spec.head_dim == 256);
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.norm == NormKind::kRmsPlusOne);
  CHECK(spec.attn_gate);
  CHECK(spec.experts.n_experts == 512);
  CHECK(spec.experts.n_used == 10);
  CHECK(spec.experts.weights_over_used);
  CHECK(spec.shared_expert.intermediate_size == 512);
  REQUIRE(spec.recurrent);
  const RecurrentShape& shape = spec.recurrent->shape;
  CHECK(shape.by_key_head);
  CHECK(shape.n_channels() == 8192);
  CHECK(shape.projected_width() == 12288 + 64);
  // 32 matrices of 128 x 128, and three columns of 8192.
  CHECK(spec.StateBytes(0, 4) == 3 * 4 * (32 * 128 * 128 + 3 * 8192));
  CHECK(spec.StateBytes(3, 1) == 0);
}

TEST_CASE("Where a recurrent projection has its heads") {
  RecurrentShape shape{
      .n_key_heads = 2, .n_value_heads = 4, .key_dim = 8, .value_dim = 3, .conv_width = 4};
  CHECK(shape.k_at(1) == 24);
  CHECK(shape.v_at(3) == 32 + 9);
  CHECK(shape.z_at(0) == 44);
  CHECK(shape.b_at(3) == 56 + 3);
  CHECK(shape.a_at(3) == 56 + 4 + 3);
  shape.by_key_head = true;  // q 8, k 8, v 6, z 6
  CHECK(shape.q_at(1) == 28);
  CHECK(shape.v_at(3) == 28 + 16 + 3);
  CHECK(shape.z_at(2) == 28 + 16 + 6);
  CHECK(shape.b_at(2) == 56 + 4);
  CHECK(shape.a_at(3) == 56 + 4 + 2 + 1);
}

TEST_CASE(
    "Qwen3.5 with a vision tower: the text part, which may leave out the size of dense MLPs") {
  const std::string text =
      R"("text_config": {"vocab_size": 512, "hidden_size": 128, "num_hidden_layers": 2,
         "num_attention_heads": 4, "layer_types": ["full_attention", "linear_attention"],
         "rope_parameters": {"rope_theta": 10000000, "rope_type": "default",
                             "mrope_section": [11, 11, 10]}, "dtype": "bfloat16")";
  const ModelSpec moe = MustRead(
      R"({"architectures": ["Qwen3_5MoeForConditionalGeneration"], "vision_config": {}, )" + text +
      "}}");
  CHECK(moe.notes.size() == 1);
  CHECK(moe.stored_dtype == DType::kBF16);
  CHECK(moe.layers[1].is_recurrent);
  CHECK_FALSE(moe.layers[0].is_recurrent);
  CHECK(moe.experts.n_used == 8);
  CHECK(moe.ropes[0].rotary_dim == 64);
  CHECK(moe.recurrent->qkvz.empty());
  CHECK(moe.mlp_width(moe.layers.front()) == 0);
  const ModelSpec dense = MustRead(
      R"({"architectures": ["Qwen3_5ForConditionalGeneration"], "tie_word_embeddings": true, )" +
      text + R"(, "intermediate_size": 160}})");
  CHECK(dense.tied_embedding);
  CHECK(dense.mlp_width() == 160);
  CHECK(dense.shared_expert.intermediate_size == 0);
}

TEST_CASE("Phi-3: fused tensors, per-frequency factors in both spellings") {
  const char* const old_spelling =
      R"("original_max_position_embeddings": 64, "partial_rotary_factor": 0.25,
         "rope_scaling": {"type": "su", "short_factor": [1, 1.5, 1, 1], "long_factor": [2, 3, 4, 5]},)";
  const char* const new_spelling =
      R"("original_max_position_embeddings": 64,
         "rope_parameters": {"rope_type": "longrope", "short_factor": [1, 1.5, 1, 1],
            "long_factor": [2, 3, 4, 5], "partial_rotary_factor": 0.25, "rope_theta": 10000.0,
            "original_max_position_embeddings": 64},)";
  for (const char* spelling : {old_spelling, new_spelling}) {
    const ModelSpec spec = MustRead(Config("Phi3ForCausalLM", spelling));
    CHECK(spec.names.qkv == "model.layers.{}.self_attn.qkv_proj");
    CHECK(spec.names.gate_up == "model.layers.{}.mlp.gate_up_proj");
    const RopeSpec& rope = spec.ropes.at(0);
    CHECK(rope.scaling == RopeScaling::kLongRope);
    CHECK(rope.rotary_dim == 8);
    CHECK(rope.original_max_positions == 64);
    CHECK(rope.attention_factor == Approx(std::sqrt(1 + std::log(8.0) / std::log(64.0))));
    CHECK(rope.short_factors == std::vector<double>{1, 1.5, 1, 1});
    CHECK(rope.long_factors == std::vector<double>{2, 3, 4, 5});
  }
  const std::string text = ErrorOf(
      Config("Phi3ForCausalLM",
             R"("rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": 2},)"),
      absl::StatusCode::kInvalidArgument);
  CHECK_THAT(text, ContainsSubstring("short_factor: has 1 entries for the 16 frequencies") &&
                       ContainsSubstring("long_factor: 2 is not a list"));
  CHECK_THAT(ErrorOf(Config("Phi3ForCausalLM", R"("partial_rotary_factor": 0.1,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("partial_rotary_factor: 0.1 of a head of 32"));
}

TEST_CASE("YaRN's attention factor") {
  const auto factor = [](std::string_view more) {
    return MustRead(Config("Qwen3ForCausalLM",
                           std::string(R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,)") +
                               std::string(more) + R"("original_max_position_embeddings": 128},)"))
        .ropes.at(0)
        .attention_factor;
  };
  CHECK(factor("") == Approx(0.1 * std::log(4.0) + 1));
  CHECK(factor(R"("attention_factor": 1.25,)") == 1.25);
  CHECK(factor(R"("mscale": 0.7, "mscale_all_dim": 1.0,)") ==
        Approx((0.07 * std::log(4.0) + 1) / (0.1 * std::log(4.0) + 1)));
}

TEST_CASE("the error names what cannot run") {
  using absl::StatusCode;
  CHECK_THAT(ErrorOf("{}", StatusCode::kInvalidArgument), ContainsSubstring("\"architectures\""));
  CHECK_THAT(ErrorOf(R"({"architectures": ["QwertyForCausalLM"]})", StatusCode::kUnimplemented),
             ContainsSubstring("QwertyForCausalLM is not supported") &&
                 ContainsSubstring("LlamaForCausalLM"));
  CHECK_THAT(ErrorOf(R"({"model_type": "bert"})", StatusCode::kUnimplemented),
             ContainsSubstring("\"bert\""));
  CHECK_THAT(
      ErrorOf(
          Config("LlamaForCausalLM", R"("rope_scaling": {"rope_type": "dynamic", "factor": 4.0},)"),
          StatusCode::kUnimplemented),
      ContainsSubstring("\"dynamic\"") && ContainsSubstring("yarn, longrope and proportional"));
  CHECK_THAT(ErrorOf(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 64, "n_embd": 32,
                         "n_head": 2, "n_layer": 2, "scale_attn_by_inverse_layer_idx": true})",
                     StatusCode::kUnimplemented),
             ContainsSubstring("scale_attn_by_inverse_layer_idx"));
  CHECK_THAT(
      ErrorOf(Config("LlamaForCausalLM", R"("quantization_config": {"quant_method": "hqq"},)"),
              StatusCode::kUnimplemented),
      ContainsSubstring("\"hqq\""));
  CHECK_THAT(
      ErrorOf(Config("LlamaForCausalLM", R"("quantization_config": {"load_in_4bit": true},)"),
              StatusCode::kUnimplemented),
      ContainsSubstring("bitsandbytes") && ContainsSubstring("dequantize()"));
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM",
                            R"("quantization_config": {"quant_method": "gptq", "bits": 3},)"),
                     StatusCode::kUnimplemented),
             ContainsSubstring("quantization_config.bits: 3 bits"));
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM",
                            R"("quantization_config": {"quant_method": "compressed-tensors",
                                "format": "marlin-24"},)"),
                     StatusCode::kUnimplemented),
             ContainsSubstring("marlin-24"));
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM",
                            R"("quantization_config": {"quant_method": "modelopt",
                                "quant_algo": "NVFP4_AWQ"},)"),
                     StatusCode::kUnimplemented),
             ContainsSubstring("\"NVFP4_AWQ\"") && ContainsSubstring("in bfloat16"));
  CHECK_THAT(
      ErrorOf(Config("LlamaForCausalLM", R"("hidden_act": "xielu",)"), StatusCode::kUnimplemented),
      ContainsSubstring("xielu"));
}

TEST_CASE("ModelOpt says what it quantized in config.json or in a file beside it") {
  const auto method = [](std::string_view more, std::string_view beside) {
    TempDir dir;
    dir.Write("config.json", Config("LlamaForCausalLM", more));
    dir.Write("hf_quant_config.json", beside);
    auto spec = ReadModelSpec(dir.path());
    INFO(spec.status());
    REQUIRE(spec.ok());
    return spec->quantization.method;
  };
  constexpr std::string_view kFile = R"({"producer": {"name": "modelopt"}, "quantization": {)";
  CHECK(method(R"("quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},)",
               "{}") == QuantMethod::kModelOpt);
  CHECK(
      method("", std::string(kFile) + R"("quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}})") ==
      QuantMethod::kModelOpt);
  CHECK(method("", std::string(kFile) + R"("quant_algo": null}})") == QuantMethod::kNone);

  TempDir dir;
  dir.Write("config.json", Config("LlamaForCausalLM", ""));
  dir.Write("hf_quant_config.json", std::string(kFile) + R"("quant_algo": "W4A8_AWQ"}})");
  CHECK_THAT(std::string(ReadModelSpec(dir.path()).status().message()),
             ContainsSubstring("hf_quant_config.json: quantization.quant_algo: \"W4A8_AWQ\""));
}

TEST_CASE("a broken config reports all its problems") {
  const std::string text = ErrorOf(
      R"({"architectures": ["LlamaForCausalLM"], "vocab_size": -1, "hidden_size": "128", "num_hidden_layers": 4000000000,
          "num_attention_heads": 4, "rope_scaling": {"rope_type": "llama3"}})",
      absl::StatusCode::kInvalidArgument);
  for (const char* part :
       {"vocab_size: -1", "hidden_size: \"128\"", "num_hidden_layers: 4000000000",
        "intermediate_size: missing", "rope_scaling.factor: missing"}) {
    CHECK_THAT(text, ContainsSubstring(part));
  }
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM", R"("num_key_value_heads": 3,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("num_key_value_heads: 3 does not divide"));
  CHECK_THAT(ErrorOf(Config("Gemma2ForCausalLM", R"("layer_types": ["full_attention"],)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("layer_types: has 1 entries for 4 layers"));
}

TEST_CASE("folders without a config.json are refused") {
  TempDir dir;
  CHECK_THAT(std::string(ReadModelSpec(dir.File("none")).status().message()),
             ContainsSubstring("no such folder"));
  CHECK_THAT(std::string(ReadModelSpec(dir.path()).status().message()),
             ContainsSubstring("no config.json"));
  dir.Write("adapter_config.json", "{}");
  const absl::Status status = ReadModelSpec(dir.path()).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("LoRA"));
}

TEST_CASE("generation defaults") {
  TempDir dir;
  dir.Write("config.json", R"({"eos_token_id": 2})");
  auto defaults = ReadGenerationDefaults(dir.path());
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<int32_t>{2});
  CHECK(defaults->sampling.empty());

  dir.Write("generation_config.json",
            R"({"eos_token_id": [128001, 128009], "temperature": 0.6, "top_p": 0.9, "top_k": -1})");
  defaults = ReadGenerationDefaults(dir.path());
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<int32_t>{128001, 128009});
  CHECK(defaults->sampling ==
        std::map<std::string, double>{{"temperature", 0.6}, {"top_p", 0.9}, {"top_k", -1}});

  dir.Write("generation_config.json", R"({"temperature": "hot", "top_p": 3})");
  const absl::Status status = ReadGenerationDefaults(dir.path()).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("temperature") && ContainsSubstring("top_p"));
}

absl::StatusOr<ModelSpec> ReadShape(const std::string& name) {
  return ReadModelSpec(STAGECOACH_SHAPES "/" + name);
}

TEST_CASE("gpt-oss, as published") {
  const ModelSpec spec = *ReadShape("gpt-oss-20b");
  CHECK(spec.n_layers() == 24);
  CHECK(spec.stored_dtype == DType::kBF16);
  CHECK(spec.quantization.method == QuantMethod::kMxFp4);
  CHECK((spec.experts.n_experts == 32 && spec.experts.n_used == 4));
  CHECK((spec.experts.router_bias && spec.experts.biases && spec.experts.weights_over_used));
  CHECK((spec.attn_sinks && spec.qkv_bias && spec.o_bias));
  CHECK(spec.clamped_glu.limit == 7.0f);
  CHECK(spec.clamped_glu.slope == 1.702f);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[0].kv_group)].window == 128);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[1].kv_group)].window == 0);
  CHECK(spec.ropes[0].scaling == RopeScaling::kYarn);
  CHECK_FALSE(spec.ropes[0].truncate);
  CHECK((*ReadShape("gpt-oss-120b")).experts.n_experts == 128);
}

TEST_CASE("GLM-4.5-Air, as published: its layer for further tokens is left out") {
  const ModelSpec spec = *ReadShape("glm-4.5-air");
  CHECK(spec.n_layers() == 46);
  CHECK(spec.n_unused_layers == 1);
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK((spec.qkv_bias && !spec.o_bias && !spec.qk_norm));
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.shared_expert.intermediate_size == 1408);
  CHECK(spec.experts.sigmoid.has_value());
  CHECK(spec.mlp_width() == 10944);
}

TEST_CASE("groups of experts must fit the experts") {
  const auto error = [](std::string_view more) {
    return ErrorOf(Config("Glm4MoeForCausalLM",
                          R"("num_key_value_heads": 4, "n_routed_experts": 8,
                             "num_experts_per_tok": 3, )" +
                              std::string(more)),
                   absl::StatusCode::kInvalidArgument);
  };
  CHECK_THAT(error(R"("n_group": 3,)"), ContainsSubstring("8 experts do not form 3 groups"));
  CHECK_THAT(error(R"("n_group": 8,)"), ContainsSubstring("8 experts do not form 8 groups"));
  CHECK_THAT(error(R"("n_group": 2, "topk_group": 3,)"), ContainsSubstring("more than n_group"));
  CHECK_THAT(error(R"("n_group": 4, "topk_group": 1,)"), ContainsSubstring("fewer experts"));
}

TEST_CASE("GLM-4.7-Flash, as published: DeepSeek's attention with scores that are not stretched") {
  const ModelSpec spec = *ReadShape("glm-4.7-flash");
  REQUIRE(spec.latent.has_value());
  CHECK(spec.latent.value_or(LatentSpec{}).q_rank == 768);
  CHECK(spec.attn_scale == Approx(1 / std::sqrt(256.0)));
  CHECK(spec.norm_eps == 1e-5);
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK((spec.n_layers() == 47 && spec.n_unused_layers == 1));
}

TEST_CASE("GLM-4.7-Flash: each layer has a known type of MLP") {
  constexpr std::string_view kSizes =
      R"("q_lora_rank": 16, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
         "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 2,
         "moe_intermediate_size": 8, )";
  const auto error = [&](const std::string& types, absl::StatusCode code) {
    return ErrorOf(
        Config("Glm4MoeLiteForCausalLM", fmt::format(R"({}"mlp_layer_types": {},)", kSizes, types)),
        code);
  };
  CHECK_THAT(error(R"(["dense"])", absl::StatusCode::kInvalidArgument),
             ContainsSubstring("mlp_layer_types: has 1 entries for"));
  CHECK_THAT(error(R"(["dense", "thin", "sparse", "sparse"])", absl::StatusCode::kUnimplemented),
             ContainsSubstring("layer 1 is a \"thin\" layer"));
}

TEST_CASE("DeepSeek V2-Lite, as published: queries are not compressed") {
  const ModelSpec spec = *ReadShape("deepseek-v2-lite");
  REQUIRE(spec.latent.has_value());
  const LatentSpec latent = spec.latent.value_or(LatentSpec{});
  CHECK((latent.q_rank == 0 && latent.kv_rank == 512 && latent.interleaved));
  CHECK(latent.q == "model.layers.{}.self_attn.q_proj");
  const HeadShape heads = spec.heads(spec.layers[0]);
  CHECK((heads.n_kv_heads == 1 && heads.head_dim == 576 && heads.value_dim == 512));
  CHECK(heads.kv_of_row == KvOfRow::kLatents);
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.ropes[0].attention_factor == Approx(1));  // mscale is mscale_all_dim
  const double mscale = 0.1 * 0.707 * std::log(40.0) + 1;
  CHECK(spec.attn_scale == Approx(mscale * mscale / std::sqrt(192.0)));
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK(spec.shared_expert.intermediate_size == 2816);
  CHECK((!spec.experts.sigmoid && !spec.experts.weights_over_used));
  CHECK(spec.experts.softmax_groups.n_groups == 1);
}

TEST_CASE("DeepSeek V3 and Kimi K2, as published") {
  const ModelSpec v3 = *ReadShape("deepseek-v3");
  CHECK(v3.latent.value_or(LatentSpec{}).q_rank == 1536);
  CHECK(v3.n_unused_layers == 1);
  CHECK((!v3.layers[2].has_experts && v3.layers[3].has_experts));
  const SigmoidRouting routing = v3.experts.sigmoid.value_or(SigmoidRouting{});
  CHECK((routing.n_groups == 8 && routing.n_used_groups == 4 && routing.factor == 2.5f));
  CHECK(v3.quantization.method == QuantMethod::kFp8);
  CHECK(v3.WeightsOfEveryRow(v3.layers[0]) == Approx(187.1e6 + 3.0 * 7168 * 18432).epsilon(1e-3));
  const ModelSpec k2 = *ReadShape("kimi-k2");
  CHECK((k2.experts.n_experts == 384 && k2.n_heads == 64));
  CHECK((k2.experts.sigmoid && k2.experts.sigmoid->n_groups == 1));
  CHECK((k2.ropes[0].beta_fast == 1 && k2.ropes[0].factor == 32));
}

TEST_CASE("Mistral Small 4, as published: latent attention, and queries scaled by position") {
  const ModelSpec spec = *ReadShape("mistral-small-4");
  CHECK(spec.architecture == "Mistral3ForConditionalGeneration");
  CHECK(spec.notes.size() == 1);
  CHECK(spec.quantization.method == QuantMethod::kFp8);
  const LatentSpec latent = spec.latent.value_or(LatentSpec{});
  CHECK((latent.q_rank == 1024 && latent.kv_rank == 256 && latent.interleaved));
  CHECK((latent.nope_dim == 64 && latent.rope_dim == 64 && latent.value_dim == 128));
  // partial_rotary_factor is half of a head, not of its rotated part.
  CHECK((spec.ropes[0].rotary_dim == 64 && spec.ropes[0].attention_factor == Approx(1)));
  const double mscale = 0.1 * std::log(128.0) + 1;
  CHECK(spec.attn_scale == Approx(mscale * mscale / std::sqrt(128.0)));
  CHECK((spec.query_scaling.beta == 0.1f && spec.query_scaling.step == 8192));
  CHECK(std::all_of(spec.layers.begin(), spec.layers.end(),
                    [](const LayerSpec& l) { return l.scales_queries && l.has_experts; }));
  CHECK((spec.experts.n_experts == 128 && spec.experts.n_used == 4));
  CHECK((!spec.experts.sigmoid && spec.experts.weights_over_used));
  CHECK(spec.shared_expert.intermediate_size == 2048);
  // 119 billion with embedding and head.
  CHECK(36 * (spec.WeightsOfExperts() + spec.WeightsOfEveryRow(spec.layers[0])) ==
        Approx(119e9 - 2.0 * 131072 * 4096).epsilon(0.01));
}

TEST_CASE("Mistral Small 4: what is refused") {
  const auto error = [](std::string_view more, absl::StatusCode code) {
    return ErrorOf(Config("Mistral4ForCausalLM",
                          R"("kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
                             "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
                             "moe_intermediate_size": 16, )" +
                              std::string(more)),
                   code);
  };
  CHECK_THAT(error(R"("rope_parameters": {"rope_type": "default"}, "n_group": 2,)",
                   absl::StatusCode::kUnimplemented),
             ContainsSubstring("only one group is supported"));
  CHECK_THAT(error(R"("rope_parameters": {"partial_rotary_factor": 0.25},)",
                   absl::StatusCode::kInvalidArgument),
             ContainsSubstring("rotates 8 numbers of a head, but qk_rope_head_dim is 16"));
  CHECK_THAT(error("", absl::StatusCode::kInvalidArgument),
             ContainsSubstring("rope_parameters: missing"));
}

TEST_CASE("what latent attention does not support is named") {
  const auto error = [](std::string_view architecture, std::string_view more,
                        absl::StatusCode code = absl::StatusCode::kUnimplemented) {
    return ErrorOf(
        Config(architecture, R"("kv_lora_rank": 64, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
                                "v_head_dim": 16, "n_routed_experts": 8, "num_experts_per_tok": 3,
                                "n_group": 1, "topk_group": 1, "moe_intermediate_size": 16, )" +
                                 std::string(more)),
        code);
  };
  const char* const v2 = "DeepseekV2ForCausalLM";
  const char* const v3 = "DeepseekV3ForCausalLM";
  CHECK_THAT(error(v3, R"("attention_bias": true,)"), ContainsSubstring("attention_bias"));
  CHECK_THAT(error(v3, R"("topk_method": "greedy",)"), ContainsSubstring("noaux_tc"));
  CHECK_THAT(error(v2, R"("scoring_func": "sigmoid",)"), ContainsSubstring("softmax"));
  CHECK_THAT(error(v2, R"("norm_topk_prob": true,)"), ContainsSubstring("norm_topk_prob"));
  CHECK_THAT(error(v2, R"("topk_method": "random",)"), ContainsSubstring("group_limited_greedy"));
  CHECK_THAT(ErrorOf(Config(v3, R"("n_routed_experts": 8, "moe_intermediate_size": 16,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("kv_lora_rank"));
}

TEST_CASE("MiniMax-M2, as published") {
  const ModelSpec spec = *ReadShape("minimax-m2");
  CHECK(spec.n_layers() == 62);
  CHECK((spec.qk_norm && spec.qk_norm_all_heads));
  CHECK(spec.ropes[0].rotary_dim == 64);
  CHECK(spec.ropes[0].theta == 5e6);
  CHECK((spec.experts.n_experts == 256 && spec.experts.intermediate_size == 1536));
  CHECK(spec.experts.sigmoid->n_groups == 1);
  CHECK(spec.quantization.method == QuantMethod::kFp8);
  CHECK_THAT(ErrorOf(Config("MiniMaxM2ForCausalLM", R"("attn_type_list": [1, 0, 1, 1],
                                                       "num_key_value_heads": 4,)"),
                     absl::StatusCode::kUnimplemented),
             ContainsSubstring("attn_type_list"));
}

TEST_CASE("Ministral 3, as published: served as text") {
  const ModelSpec spec = *ReadShape("ministral-3-8b");
  CHECK(spec.architecture == "Mistral3ForConditionalGeneration");
  REQUIRE(spec.notes.size() == 1);
  CHECK_THAT(spec.notes[0], ContainsSubstring("served as a text model"));
  CHECK(spec.query_scaling.beta == 0.1f);
  CHECK(spec.query_scaling.step == 16384);
  CHECK(spec.query_scaling.At(16383) == 1);
  CHECK(spec.query_scaling.At(16384) == Approx(1 + 0.1 * std::log(2.0)));
  CHECK(spec.ropes[0].scaling == RopeScaling::kYarn);
  CHECK(spec.ropes[0].attention_factor == Approx(1));
  CHECK((*ReadShape("ministral-3-14b")).hidden_size == 5120);
  CHECK_THAT(ErrorOf(Config("Ministral3ForCausalLM", R"("num_key_value_heads": 4,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("rope_parameters"));
}

TEST_CASE("Llama 4 Scout, as published: chunks, and layers without rotation") {
  const ModelSpec spec = *ReadShape("llama-4-scout");
  CHECK(spec.notes.size() == 1);
  REQUIRE(spec.kv_groups.size() == 2);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[0].kv_group)].window ==
        KeyWindow(8192, /*by_chunk=*/true));
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[3].kv_group)].window == 0);
  CHECK((spec.layers[0].rope == 0 && spec.layers[3].rope == -1));
  CHECK((!spec.layers[0].scales_queries && spec.layers[3].scales_queries));
  CHECK(spec.query_scaling.At(8190) == 1);
  CHECK(spec.query_scaling.At(8191) == Approx(1 + 0.1 * std::log(2.0)));
  CHECK(spec.ropes[0].scaling == RopeScaling::kLlama3);
  CHECK((spec.plain_qk_norm && !spec.qk_norm && spec.neighbours_rotate));
  CHECK((spec.experts.scales_input && spec.experts.n_experts == 16 && spec.experts.n_used == 1));
  CHECK(spec.shared_expert.intermediate_size == 8192);
  CHECK(spec.mlp_width(spec.layers[0]) == 0);
}

TEST_CASE("Llama 4 Maverick, as published: experts in every other layer") {
  const ModelSpec spec = *ReadShape("llama-4-maverick");
  CHECK_FALSE(spec.plain_qk_norm);
  CHECK(spec.ropes[0].scaling == RopeScaling::kNone);
  CHECK((!spec.layers[0].has_experts && spec.layers[1].has_experts));
  CHECK((spec.mlp_width(spec.layers[0]) == 16384 && spec.mlp_width(spec.layers[1]) == 0));
}

TEST_CASE("Llama 4: defaults, older spellings and what is refused") {
  const auto llama4 = [](const std::string& keys) {
    return Config("Llama4ForCausalLM", R"("num_key_value_heads": 2,)" + keys);
  };
  const ModelSpec spec = MustRead(llama4(R"("attn_temperature_tuning": 0,)"));
  CHECK(spec.query_scaling.beta == 0);
  CHECK(spec.layers[0].rope == 0);
  // 64 positions are one chunk.
  CHECK((spec.kv_groups.size() == 1 && spec.kv_groups[0].window == 0));
  CHECK(MustRead(llama4(R"("attn_temperature_tuning": 4,)")).query_scaling.beta == 0.1f);
  CHECK_THAT(ErrorOf(llama4(R"("num_experts_per_tok": 2,)"), absl::StatusCode::kUnimplemented),
             ContainsSubstring("only one expert"));
  CHECK_THAT(ErrorOf(llama4(R"("no_rope_layers": [1],)"), absl::StatusCode::kInvalidArgument),
             ContainsSubstring("has 1 entries for"));
}

TEST_CASE("Nemotron-H 8B and Nano 2, as published: each layer is one part") {
  const ModelSpec spec = *ReadShape("nemotron-h-8b");
  CHECK(spec.n_layers() == 52);
  CHECK(spec.n_recurrent(0, 52) == 24);
  const LayerSpec &mamba = spec.layers[0], &mlp = spec.layers[1], &attention = spec.layers[7];
  CHECK((mamba.is_recurrent && mamba.has_mixer && !mamba.has_mlp && !mamba.has_attention()));
  CHECK((mlp.has_mlp && !mlp.has_mixer && !mlp.has_attention()));
  CHECK((attention.has_attention() && !attention.has_mlp && attention.rope == -1));
  CHECK((spec.mlp_width(mlp) == 21504 && spec.mlp_width(mamba) == 0));
  CHECK((!spec.gated_mlp && spec.activation == Activation::kReluSquared));
  const RecurrentShape shape = spec.recurrent.value_or(RecurrentSpec{}).shape;
  CHECK(shape.is_state_space());
  CHECK(shape.projected_width() == 2 * 8192 + 2 * 8 * 128 + 128);
  CHECK(shape.state_elements() == 3 * (8192 + 2 * 8 * 128) + 8192 * 128);
  CHECK(shape.norm_group() == 1024);
  CHECK(spec.head_dim == 128);
  const ModelSpec nano = *ReadShape("nemotron-nano-9b-v2");
  CHECK(nano.recurrent.value_or(RecurrentSpec{}).shape.value_dim == 80);
}

TEST_CASE("Nemotron 3 Nano, as published: experts without gates") {
  const ModelSpec spec = *ReadShape("nemotron-3-nano-30b-a3b");
  CHECK((spec.layers[1].has_experts && spec.mlp_width(spec.layers[1]) == 0));
  CHECK((spec.experts.n_experts == 128 && spec.experts.n_used == 6));
  CHECK(spec.experts.sigmoid.value_or(SigmoidRouting{}).factor == 2.5f);
  CHECK(spec.shared_expert.intermediate_size == 3712);
  CHECK(spec.WeightsOfExperts() == 2.0 * 2688 * 1856 * 128);
}

TEST_CASE("Nemotron-H: names of layers, and what is refused") {
  const auto nemotron = [](const std::string& keys) {
    return Config("NemotronHForCausalLM", R"("num_key_value_heads": 2,)" + keys);
  };
  const ModelSpec spec = MustRead(nemotron(R"("layers_block_type": ["mamba", "mlp",
      "full_attention", "linear_attention"], "time_step_limit": [0.0, {"__float__": "Infinity"}],)"));
  CHECK((spec.layers[0].is_recurrent && spec.layers[1].has_mlp && spec.layers[3].is_recurrent));
  CHECK_THAT(
      ErrorOf(nemotron(R"("hybrid_override_pattern": "M-M",)"), absl::StatusCode::kInvalidArgument),
      ContainsSubstring("names 3 layers, num_hidden_layers is 4"));
  CHECK_THAT(
      ErrorOf(nemotron(R"("hybrid_override_pattern": "M-MX",)"), absl::StatusCode::kUnimplemented),
      ContainsSubstring("layer 3 is 'X'"));
  CHECK_THAT(ErrorOf(nemotron(R"("hybrid_override_pattern": "M-ME", "moe_latent_size": 64,)"),
                     absl::StatusCode::kUnimplemented),
             ContainsSubstring("moe_latent_size"));
  CHECK_THAT(ErrorOf(nemotron(R"("hybrid_override_pattern": "M-M*", "time_step_limit": [0.1, 1],)"),
                     absl::StatusCode::kUnimplemented),
             ContainsSubstring("time_step_limit"));
}

TEST_CASE("Gemma 4 31B, as published: full layers have other heads") {
  const ModelSpec spec = *ReadShape("gemma-4-31b");
  CHECK(spec.n_layers() == 60);
  const HeadShape windowed = spec.heads(spec.layers[0]), full = spec.heads(spec.layers[5]);
  CHECK((windowed.head_dim == 256 && windowed.n_kv_heads == 16));
  CHECK(windowed.kv_of_row == KvOfRow::kKeysAndValues);
  CHECK((full.head_dim == 512 && full.n_kv_heads == 4));
  CHECK(full.kv_of_row == KvOfRow::kKeysAsValues);
  CHECK(full.qkv_width() == (32 + 4) * 512);
  CHECK(spec.kv_groups[static_cast<size_t>(spec.layers[0].kv_group)].window == 1024);
  const RopeSpec& rope = spec.ropes[static_cast<size_t>(spec.layers[5].rope)];
  CHECK(rope.scaling == RopeScaling::kProportional);
  CHECK((rope.theta == 1e6 && rope.rotary_dim == 512 && rope.n_turning == 64));
  CHECK(spec.ropes[static_cast<size_t>(spec.layers[0].rope)].rotary_dim == 256);
  CHECK((spec.attn_scale == 1 && spec.logit_softcap == 30));
  CHECK(spec.passed_width() == 5376);
  CHECK(spec.CanBeginStage(59));
}

TEST_CASE("Gemma 4 26B-A4B, as published: experts beside each MLP") {
  const ModelSpec spec = *ReadShape("gemma-4-26b-a4b");
  CHECK(spec.experts.beside_mlp);
  CHECK((spec.experts.n_experts == 128 && spec.experts.n_used == 8));
  CHECK(spec.experts.intermediate_size == 704);
  CHECK(spec.mlp_width(spec.layers[0]) == 2112);
}

TEST_CASE("Gemma 4 E2B and E4B, as published: shared keys and inputs of layers") {
  const ModelSpec spec = *ReadShape("gemma-4-e2b");
  CHECK(spec.layers[14].kv_source == -1);
  CHECK(spec.layers[15].kv_source == 13);
  CHECK(spec.layers[19].kv_source == 14);
  CHECK(spec.layers[34].kv_source == 14);
  CHECK(spec.heads(spec.layers[34]).qkv_width() == 8 * 512);
  CHECK(spec.mlp_width(spec.layers[14]) == 6144);
  CHECK(spec.mlp_width(spec.layers[15]) == 12288);
  CHECK(spec.CanBeginStage(13));
  CHECK_FALSE(spec.CanBeginStage(14));
  CHECK(spec.passed_width() == 1536 + 35 * 256);
  const ModelSpec larger = *ReadShape("gemma-4-e4b");
  CHECK(larger.layers[41].kv_source == 23);
  CHECK(larger.mlp_width() == 10240);
  CHECK(larger.heads(larger.layers[5]).kv_of_row == KvOfRow::kKeysAndValues);
}

TEST_CASE("Gemma 4: what cannot be run is named") {
  const auto error = [](std::string_view more, absl::StatusCode code) {
    return ErrorOf(
        Config("Gemma4ForCausalLM",
               R"("hidden_size_per_layer_input": 0, "head_dim": 32, )" + std::string(more)),
        code);
  };
  const auto wrong = absl::StatusCode::kInvalidArgument;
  const auto unsupported = absl::StatusCode::kUnimplemented;
  CHECK_THAT(error(R"("use_bidirectional_attention": "all",)", unsupported),
             ContainsSubstring("only causal attention"));
  CHECK_THAT(error(R"("per_layer_config": {"0": {"head_dim": 16}},)", unsupported),
             ContainsSubstring("only full_attention layers"));
  CHECK_THAT(error(R"("num_kv_shared_layers": 4,)", wrong),
             ContainsSubstring("has no layer of its kind"));
  CHECK_THAT(error(R"("enable_moe_block": true,)", wrong), ContainsSubstring("num_experts"));
  CHECK_THAT(error(R"("attention_k_eq_v": true, "num_global_key_value_heads": 3,)", wrong),
             ContainsSubstring("num_global_key_value_heads"));
}

TEST_CASE("Mistral Small with a vision tower: Mistral's layers") {
  const ModelSpec spec = *Read(R"({"architectures": ["Mistral3ForConditionalGeneration"],
    "text_config": {"model_type": "mistral", "vocab_size": 512, "hidden_size": 128, "head_dim": 32,
                    "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
                    "num_key_value_heads": 2, "max_position_embeddings": 512}})");
  CHECK(spec.query_scaling.beta == 0);
  CHECK(spec.n_kv_heads == 2);
}

}  // namespace
}  // namespace stagecoach
