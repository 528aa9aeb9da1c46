#include <catch2/catch_approx.hpp>
#include <cmath>

#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Approx;

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

TEST_CASE("Llama with biases") {
  const ModelSpec spec = MustRead(Config(
      "LlamaForCausalLM", R"("attention_bias": true, "mlp_bias": true, "dtype": "float16",)"));
  CHECK(spec.qkv_bias);
  CHECK(spec.o_bias);
  CHECK(spec.mlp_bias);
  CHECK(spec.stored_dtype == DType::kF16);
}

}  // namespace
}  // namespace stagecoach
