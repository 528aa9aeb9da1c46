#include "worker/loader/unexpected_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <optional>
#include <string_view>

#include "worker/loader/tensor_names.h"

namespace stagecoach::worker {
namespace {

struct LayerName {
  std::string_view stem;  // "model.layers." in "model.layers.12.mlp.up_proj.weight"
  int32_t layer;
};

std::optional<LayerName> SplitLayer(std::string_view name) {
  size_t begin = 0;
  while (begin < name.size()) {
    const size_t end = std::min(name.find('.', begin), name.size());
    int32_t layer = 0;
    const auto [rest, error] = std::from_chars(name.data() + begin, name.data() + end, layer);
    if (error == std::errc() && rest == name.data() + end && layer >= 0) {
      return LayerName{name.substr(0, begin), layer};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

bool IsNorm(std::string_view name) {
  return name.find("norm") != name.npos || name.find(".ln_") != name.npos;
}

// Tensors that a layer with LayerSpec::kv_source does not have.
constexpr std::string TensorNames::* kOfKeys[] = {&TensorNames::k, &TensorNames::v,
                                                  &TensorNames::k_norm};

// Scales of a quantized KV cache, as compressed-tensors and ModelOpt name them.
constexpr std::string_view kKvScales[] = {".k_scale", ".v_scale", ".kv_scale",
                                          ".k_proj.output_scale", ".v_proj.output_scale"};

class Judge {
 public:
  Judge(const ModelSpec& spec, const std::set<std::string>& used) : spec_(spec), used_(used) {
    // Names of the decoder's layers, to distinguish them from those of a vision tower.
    for (const std::string& name : used) {
      if (const auto split = SplitLayer(name)) stems_.insert(std::string(split->stem));
    }
  }

  void Add(const std::string& name, UnexpectedTensors* found) const {
    if (spec_.tied_embedding && IsHead(name)) {
      found->notes.Add(name, "ignored: config.json ties it to the embedding");
      return;
    }
    const auto split = SplitLayer(name);
    const bool in_layer = split && stems_.contains(std::string(split->stem));
    const int32_t n_layers = spec_.n_layers();
    if (in_layer && split->layer >= n_layers && split->layer < n_layers + spec_.n_unused_layers) {
      found->notes.Add(name, "ignored: the layer predicts further tokens, which is not used");
    } else if (in_layer && split->layer >= n_layers) {
      found->problems.Add(
          name, fmt::format("belongs to a layer that config.json does not have (num_hidden_layers "
                            "is {}): the config.json is of another model",
                            n_layers));
    } else if (in_layer && IsOfSharedKeys(name.substr(split->stem.size()), split->layer)) {
      found->notes.Add(name, "ignored: the layer uses the keys and values of another layer");
    } else if (HasBiasOfUsedWeight(name)) {
      found->problems.Add(name,
                          "is a bias that config.json does not turn on: without it the model "
                          "would be computed wrongly; correct config.json (such as "
                          "attention_bias, mlp_bias)");
    } else if (in_layer && IsNorm(name)) {
      found->problems.Add(
          name,
          "is a norm that this architecture does not have: without it the model would be "
          "computed wrongly; does config.json name the right architecture?");
    } else {
      found->notes.Add(name, std::string(WhyIgnored(name)));
    }
  }

 private:
  static bool IsHead(std::string_view name) {
    return name == "output.weight" || name.ends_with("lm_head.weight");
  }

  // rest: the name from the layer's number on.
  bool IsOfSharedKeys(std::string_view rest, int32_t layer) const {
    if (spec_.layers[static_cast<size_t>(layer)].kv_source < 0) return false;
    rest.remove_prefix(std::min(rest.find('.'), rest.size()));
    constexpr std::string_view kPlace = "{}";
    return std::any_of(std::begin(kOfKeys), std::end(kOfKeys), [&](auto field) {
      std::string_view pattern = spec_.names.*field;
      const size_t at = pattern.find(kPlace);
      if (at == pattern.npos) return false;
      pattern.remove_prefix(at + kPlace.size());
      return rest.starts_with(pattern);
    });
  }

  std::string_view WhyIgnored(std::string_view name) const {
    if (spec_.recurrent && name.starts_with("mtp.")) {
      return "ignored: it predicts several tokens at once, which is not offered for this model";
    }
    for (const std::string_view scale : kKvScales) {
      if (name.ends_with(scale)) {
        return "ignored: it is a scale of a quantized KV cache; --kv-dtype fp8 measures its own";
      }
    }
    if (name.find("visual.") != name.npos || name.find("vision_") != name.npos) {
      return "ignored: it belongs to the vision tower, and the model is served as text";
    }
    return "ignored: this architecture does not use it";
  }

  bool HasBiasOfUsedWeight(std::string_view name) const {
    constexpr std::string_view kBias = ".bias";
    if (!name.ends_with(kBias)) return false;
    name.remove_suffix(kBias.size());
    return used_.contains(std::string(name) + ".weight");
  }

  const ModelSpec& spec_;
  const std::set<std::string>& used_;
  std::set<std::string> stems_;
};

}  // namespace

UnexpectedTensors JudgeUnexpected(const ModelSpec& spec, const std::vector<std::string>& names,
                                  const std::set<std::string>& used) {
  UnexpectedTensors found;
  const Judge judge(spec, used);
  for (const std::string& name : names) {
    if (used.contains(name) || IsLoraName(name) || IsComputedBuffer(name)) continue;
    judge.Add(name, &found);
  }
  return found;
}

}  // namespace stagecoach::worker
