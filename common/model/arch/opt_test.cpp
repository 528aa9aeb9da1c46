#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

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

}  // namespace
}  // namespace stagecoach
