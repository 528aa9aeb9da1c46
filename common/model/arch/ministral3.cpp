// Ministral 3: Mistral's layers, with queries that grow with the position. Published checkpoints
// also have a vision tower, and so have those of Mistral Small 3.1 and later.
#include "common/model/arch/arch.h"
#include "common/model/arch/shared.h"

namespace stagecoach::arch {

void ReadMistral(ConfigReader& config, ModelSpec& spec);   // mistral.cpp
void ReadMistral4(ConfigReader& config, ModelSpec& spec);  // deepseek.cpp

void ReadMinistral3(ConfigReader& config, ModelSpec& spec) {
  SizeDefaults defaults{.max_positions = 262144, .norm_eps = 1e-5};
  if (!config.Mentions("num_key_value_heads")) defaults.n_kv_heads = 8;
  ReadSizes(config, defaults, spec);
  spec.activation = ReadActivation(config, "hidden_act", "silu");
  spec.tied_embedding = config.Bool("tie_word_embeddings", spec.tied_embedding);
  spec.ropes = {ReadRope(config, 1e6, spec)};
  const int32_t window = config.Int("sliding_window", 1, kMaxPositions, 0);
  ReadQueryScaling(config, spec);
  if (!config.ok()) return;
  spec.attn_scale = UsualAttentionScale(spec);
  SetKvGroups(std::vector<int32_t>(spec.layers.size(), window), spec);
  spec.names = LlamaTensorNames();
}

void ReadMistral3(ConfigReader& config, ModelSpec& spec) {
  std::optional<ConfigReader> text = TextPart(config, spec);
  if (!text) return;
  spec.tied_embedding = config.Bool("tie_word_embeddings", false);
  const std::string type = text->String("model_type", "mistral");
  if (type == "ministral3") {
    ReadMinistral3(*text, spec);
  } else if (type == "mistral4") {
    ReadMistral4(*text, spec);
  } else if (type == "mistral") {
    ReadMistral(*text, spec);
  } else {
    text->Unsupported("model_type", "supported are ministral3, mistral4 and mistral");
  }
}

}  // namespace stagecoach::arch
