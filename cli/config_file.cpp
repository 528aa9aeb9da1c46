#include "cli/config_file.h"

#include <fmt/format.h>
#define TOML_HEADER_ONLY 1  // NOLINT(cppcoreguidelines-macro-usage)
#include <toml++/toml.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <utility>

#include "common/status.h"
#include "common/user_folder.h"

namespace stagecoach::cli {
namespace {

// nullopt: no value of a flag.
std::optional<std::string> TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* is_on = node.as_boolean()) return is_on->get() ? "true" : "false";
  return std::nullopt;
}

class ConfigReader {
 public:
  explicit ConfigReader(std::string path) { file_.path = std::move(path); }

  absl::StatusOr<ConfigFile> Read() {
    try {
      const toml::table root = toml::parse_file(file_.path);
      SC_RETURN_IF_ERROR(Section(root, {}));
    } catch (const toml::parse_error& error) {
      return Wrong(error.source().begin.line, std::string(error.description()));
    }
    return std::move(file_);
  }

 private:
  absl::Status Wrong(toml::source_index line, const std::string& what) const {
    return absl::InvalidArgumentError(fmt::format("{}:{}: {}", file_.path, line, what));
  }

  absl::Status Section(const toml::table& table, const std::vector<std::string>& path) {
    for (const auto& [key, node] : table) {
      const std::string name(key.str());
      if (const toml::table* inner = node.as_table()) {
        std::vector<std::string> deeper = path;
        deeper.push_back(name);
        SC_RETURN_IF_ERROR(Section(*inner, deeper));
      } else {
        SC_RETURN_IF_ERROR(Value(node, path, name));
      }
    }
    return absl::OkStatus();
  }

  absl::Status Value(const toml::node& node, const std::vector<std::string>& path,
                     const std::string& key) {
    ConfigEntry entry{.section = path,
                      .key = key,
                      .values = {},
                      .is_bool = node.is_boolean(),
                      .line = static_cast<int>(node.source().begin.line)};
    const auto add = [&](const toml::node& one) {
      std::optional<std::string> text = TextOf(one);
      if (text) entry.values.push_back(*std::move(text));
      return text.has_value();
    };
    bool good = true;
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& one : *list) good = add(one) && good;
    } else {
      good = add(node);
    }
    if (!good) {
      return Wrong(node.source().begin.line,
                   fmt::format("{}: give text, a number, true, false or a list of these", key));
    }
    file_.entries.push_back(std::move(entry));
    return absl::OkStatus();
  }

  ConfigFile file_;
};

}  // namespace

std::string ConfigFile::PlaceOf(const ConfigEntry& entry) const {
  return fmt::format("{}:{}", path, entry.line);
}

absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) {
    return absl::NotFoundError(fmt::format("{}: there is no such configuration file", path));
  }
  return ConfigReader(path).Read();
}

std::string DefaultConfigPath() {
  const std::filesystem::path folder = UserFolder("XDG_CONFIG_HOME", ".config");
  return folder.empty() ? "" : (folder / "config.toml").string();
}

}  // namespace stagecoach::cli
