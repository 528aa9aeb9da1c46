#include "worker/loader/tensor_names.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

bool Has(std::string_view name, const char* spelling, bool with_lora = false) {
  const std::vector<std::string> all = Spellings(name, with_lora);
  CHECK(all.front() == name);
  return std::find(all.begin(), all.end(), spelling) != all.end();
}

TEST_CASE("tensor names of published checkpoints match") {
  CHECK(Has("model.layers.3.mlp.up_proj.weight", "layers.3.mlp.up_proj.weight"));
  CHECK(Has("model.decoder.layers.3.fc1.bias", "decoder.layers.3.fc1.bias"));
  CHECK(Has("model.decoder.layers.3.fc1.bias", "layers.3.fc1.bias"));
  CHECK(Has("transformer.h.0.ln_1.bias", "h.0.ln_1.bias"));
  CHECK(Has("lm_head.weight", "language_model.lm_head.weight"));
  CHECK(Has("blk.0.attn_q.weight", "blk.0.attn_q.weight"));
  const char* const peft = "base_model.model.model.norm.base_layer.weight";
  CHECK_FALSE(Has("model.norm.weight", peft));
  CHECK(Has("model.norm.weight", peft, /*with_lora=*/true));
}

TEST_CASE("leftover tensors are classified") {
  CHECK(IsLoraName("base_model.model.model.norm.weight"));
  CHECK(IsLoraName("model.layers.0.self_attn.q_proj.base_layer.weight"));
  CHECK(IsLoraName("model.layers.0.self_attn.q_proj.lora_A.default.weight"));
  CHECK_FALSE(IsLoraName("model.layers.0.self_attn.q_proj.weight"));
  CHECK(IsComputedBuffer("model.layers.0.self_attn.rotary_emb.inv_freq"));
  CHECK(IsComputedBuffer("h.0.attn.masked_bias"));
  CHECK(IsComputedBuffer("h.0.attn.bias"));
  CHECK_FALSE(IsComputedBuffer("h.0.attn.c_attn.bias"));
  CHECK_FALSE(IsComputedBuffer("model.layers.0.self_attn.q_proj.bias"));
}

}  // namespace
}  // namespace stagecoach::worker
