#include "worker/loader/lora_config.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <filesystem>

#include "common/model/config_reader.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr double kMaxAlpha = 1e9;

// Whether the pattern is the module's name, or a suffix of it that starts at a component.
bool Fits(std::string_view pattern, std::string_view module) {
  if (pattern.starts_with('^')) return module == pattern.substr(1);
  if (!module.ends_with(pattern)) return false;
  const size_t before = module.size() - pattern.size();
  return before == 0 || module[before - 1] == '.';
}

// True unless the value is absent, null, false or empty.
bool IsFilled(const boost::json::object& object, const char* key) {
  const boost::json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return false;
  if (value->is_array()) return !value->get_array().empty();
  if (value->is_object()) return !value->get_object().empty();
  return !value->is_bool() || value->get_bool();
}

void RefuseOtherKinds(const boost::json::object& object, ConfigReader& config) {
  const std::string kind = config.String("peft_type", "LORA");
  if (kind != "LORA") {
    config.Unsupported("peft_type", fmt::format("\"{}\" is not supported, only LORA", kind));
  }
  for (const char* flag : {"use_dora", "lora_bias", "use_qalora"}) {
    if (config.Bool(flag, false)) config.Unsupported(flag, "is not supported");
  }
  // The other initializations also change the base model's weights.
  const boost::json::value* init = object.if_contains("init_lora_weights");
  if (init != nullptr && init->is_string() && init->get_string() != "gaussian" &&
      init->get_string() != "eva" && init->get_string() != "orthogonal") {
    config.Unsupported("init_lora_weights",
                       fmt::format("\"{}\" changes the base model's weights too: merge the adapter "
                                   "with peft (merge_and_unload)",
                                   std::string_view(init->get_string())));
  }
  const std::string bias = config.String("bias", "none");
  if (bias != "none") {
    config.Unsupported("bias", fmt::format("\"{}\" is not supported, only none", bias));
  }
  for (const char* key : {"modules_to_save", "layer_replication", "target_parameters",
                          "trainable_token_indices", "alora_invocation_tokens", "kasa_config",
                          "arrow_config", "use_bdlora", "monteclora_config"}) {
    if (IsFilled(object, key)) {
      config.Unsupported(key, "is not supported: merge the adapter with peft (merge_and_unload)");
    }
  }
}

}  // namespace

float LoraConfig::Scale(std::string_view module, int64_t rank) const {
  double module_alpha = alpha;
  for (const auto& [pattern, value] : alpha_pattern) {
    if (!Fits(pattern, module)) continue;
    module_alpha = value;
    break;
  }
  const double r = static_cast<double>(rank);
  return static_cast<float>(module_alpha / (rank_stabilised ? std::sqrt(r) : r));
}

absl::StatusOr<LoraConfig> ReadLoraConfig(const std::string& dir) {
  const std::string path = (std::filesystem::path(dir) / "adapter_config.json").string();
  auto object = ReadJsonObject(path);
  if (absl::IsNotFound(object.status())) {
    return absl::NotFoundError(
        fmt::format("{}: no such file; --merge-adapter needs the folder that holds the adapter's "
                    "adapter_config.json, without which its scale (lora_alpha) is not known",
                    path));
  }
  SC_RETURN_IF_ERROR(object.status());
  ConfigReader config(*object, path);
  RefuseOtherKinds(**object, config);
  LoraConfig lora;
  lora.alpha = config.Number("lora_alpha", -kMaxAlpha, kMaxAlpha, 8);
  lora.rank_stabilised = config.Bool("use_rslora", false);
  const boost::json::value* patterns = (*object)->if_contains("alpha_pattern");
  if (patterns != nullptr && patterns->is_object()) {
    ConfigReader section = config.Section("alpha_pattern");
    for (const auto& [key, value] : patterns->get_object()) {
      const std::string pattern(key.data(), key.size());
      if (pattern.find_first_of("*+?()[]{}|\\$") != pattern.npos) {
        section.Unsupported(pattern, "a regular expression; only names of modules are supported");
      }
      lora.alpha_pattern.emplace_back(pattern, section.Number(pattern, -kMaxAlpha, kMaxAlpha));
    }
  }
  SC_RETURN_IF_ERROR(config.Finish());
  return lora;
}

}  // namespace stagecoach::worker
