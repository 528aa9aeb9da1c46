#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

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

}  // namespace
}  // namespace stagecoach
