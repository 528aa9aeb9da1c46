#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

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

}  // namespace
}  // namespace stagecoach
