// Models of the measured rows in tests/bench/results, for tests.
#pragma once

#include <string>
#include <string_view>

#include "common/model/model_spec.h"
#include "common/temp_dir.h"

namespace stagecoach::plan {

// A shape of tests/bench/random_checkpoint.py that docs/shapes does not have.
inline constexpr std::string_view kQwen3MoE =
    R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 2048,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "num_experts": 128,
    "num_experts_per_tok": 8, "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
    "vocab_size": 151936, "max_position_embeddings": 40960, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
    "hidden_act": "silu", "tie_word_embeddings": false, "torch_dtype": "bfloat16"})";

// shape: a folder of docs/shapes, or a config.json
inline ModelSpec SpecOf(std::string_view shape) {
  if (shape[0] != '{') return *ReadModelSpec(std::string(STAGECOACH_SHAPES "/").append(shape));
  TempDir dir;
  dir.Write("config.json", std::string(shape));
  return *ReadModelSpec(dir.path());
}

}  // namespace stagecoach::plan
