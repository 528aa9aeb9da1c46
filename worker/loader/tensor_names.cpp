#include "worker/loader/tensor_names.h"

#include <fmt/format.h>

namespace stagecoach::worker {
namespace {

// Returns false if `text` does not begin with `prefix`.
bool Strip(std::string_view prefix, std::string_view* text) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Published files differ in the prefix before the layers. A base model saved without its head has
// no "model.". OPT's first files have no "model." or "decoder.". A multimodal model adds its own
// part before or after "model.".
std::vector<std::string> PlainSpellings(std::string_view name) {
  std::string_view rest = name;
  if (Strip("transformer.", &rest)) return {std::string(name), std::string(rest)};
  if (Strip("backbone.", &rest)) return {std::string(name), fmt::format("model.{}", rest)};
  if (!Strip("model.", &rest)) {
    return {std::string(name), fmt::format("language_model.{}", name)};
  }
  std::vector<std::string> spellings = {std::string(name), std::string(rest)};
  if (std::string_view inner = rest; Strip("decoder.", &inner)) spellings.emplace_back(inner);
  spellings.push_back(fmt::format("language_model.model.{}", rest));
  spellings.push_back(fmt::format("model.language_model.{}", rest));
  return spellings;
}

}  // namespace

std::vector<std::string> Spellings(std::string_view name, bool with_lora) {
  std::vector<std::string> spellings = PlainSpellings(name);
  if (!with_lora) return spellings;
  const size_t n_plain = spellings.size();
  for (size_t i = 0; i < n_plain; ++i) {
    const std::string plain = spellings[i];
    const size_t dot = std::min(plain.rfind('.'), plain.size());
    const std::string wrapped = plain.substr(0, dot) + ".base_layer" + plain.substr(dot);
    spellings.push_back(wrapped);
    spellings.push_back("base_model.model." + wrapped);
    spellings.push_back("base_model.model." + plain);
  }
  return spellings;
}

bool IsLoraName(std::string_view name) {
  return name.starts_with("base_model.model.") || name.find(".base_layer.") != name.npos ||
         name.find(".lora_") != name.npos || name.find(".modules_to_save.") != name.npos;
}

bool IsComputedBuffer(std::string_view name) {
  // GPT-2's causal mask, with and without its own prefix; rotary frequencies; BERT-like position
  // numbers; GGUF's frequency factors, which are checked when the config is read.
  for (const std::string_view end :
       {".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias",
        ".rotary_emb.inv_freq", "rotary_emb.inv_freq", ".rotary_emb.original_inv_freq",
        ".position_ids", ".rope.freqs", "rope_freqs.weight"}) {
    if (name.ends_with(end)) return true;
  }
  return false;
}

}  // namespace stagecoach::worker
