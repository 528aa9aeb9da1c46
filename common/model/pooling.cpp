#include "common/model/pooling.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json.hpp>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "common/model/config_reader.h"
#include "common/status.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

struct Module {
  std::string kind;  // "Pooling" of "sentence_transformers.models.Pooling"
  std::string path;  // the folder of its configuration
};

absl::StatusOr<std::vector<Module>> ReadModules(const std::string& path) {
  SC_ASSIGN_OR_RETURN(const json::value value, ReadJson(path));
  if (!value.is_array()) {
    return absl::InvalidArgumentError(fmt::format("{}: not a JSON array", path));
  }
  std::vector<Module> modules;
  for (const json::value& one : value.get_array()) {
    const json::object* const object = one.if_object();
    const auto text = [object](const char* key) {
      const json::value* const found = object == nullptr ? nullptr : object->if_contains(key);
      return found != nullptr && found->is_string() ? std::string(found->get_string()) : "";
    };
    const std::string type = text("type");
    if (type.empty()) {
      return absl::InvalidArgumentError(fmt::format("{}: a module has no \"type\"", path));
    }
    modules.push_back({type.substr(type.rfind('.') + 1), text("path")});
  }
  return modules;
}

// The older form has a flag for each kind, the newer one a name.
absl::StatusOr<bool> IsMean(const std::string& path) {
  SC_ASSIGN_OR_RETURN(const auto object, ReadJsonObject(path));
  ConfigReader config(object, path);
  std::vector<std::string> modes;
  if (const std::string mode = config.String("pooling_mode", ""); !mode.empty()) {
    modes.push_back(mode);
  }
  constexpr std::pair<const char*, const char*> kFlags[] = {
      {"pooling_mode_cls_token", "cls"},
      {"pooling_mode_max_tokens", "max"},
      {"pooling_mode_mean_tokens", "mean"},
      {"pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"},
      {"pooling_mode_weightedmean_tokens", "weightedmean"},
      {"pooling_mode_lasttoken", "lasttoken"}};
  for (const auto& [flag, mode] : kFlags) {
    if (config.Bool(flag, false)) modes.emplace_back(mode);
  }
  SC_RETURN_IF_ERROR(config.Finish());
  if (modes.size() == 1 && (modes[0] == "mean" || modes[0] == "lasttoken")) {
    return modes[0] == "mean";
  }
  return absl::UnimplementedError(
      fmt::format("{}: pooling must be one of mean and lasttoken; it is {}", path,
                  modes.empty() ? "not named" : fmt::format("{}", fmt::join(modes, " and "))));
}

}  // namespace

absl::StatusOr<std::optional<PoolingSpec>> ReadPooling(const std::string& model_dir) {
  const std::string path = (fs::path(model_dir) / "modules.json").string();
  std::error_code error;
  if (!fs::exists(path, error)) return std::nullopt;
  SC_ASSIGN_OR_RETURN(const std::vector<Module> modules, ReadModules(path));
  std::optional<PoolingSpec> pooling;
  std::string_view unknown;
  for (const Module& one : modules) {
    if (one.kind == "Pooling" && !pooling) {
      const fs::path config = fs::path(model_dir) / one.path / "config.json";
      SC_ASSIGN_OR_RETURN(const bool mean, IsMean(config.string()));
      pooling = PoolingSpec{.mean = mean};
    } else if (one.kind == "Normalize" && pooling) {
      pooling->normalize = true;
    } else if (one.kind != "Transformer") {
      unknown = one.kind;
    }
  }
  if (!pooling || unknown.empty()) return pooling;
  return absl::UnimplementedError(
      fmt::format("{}: the step \"{}\" is not supported; supported are Transformer, Pooling and "
                  "Normalize",
                  path, unknown));
}

}  // namespace stagecoach
