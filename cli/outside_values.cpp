#include "cli/outside_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <set>

#include "cli/command_tree.h"
#include "cli/suggest.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

constexpr char kConfig[] = "config";
constexpr char kOff[] = "off";

// An empty variable counts as not set.
std::optional<std::string> ReadVariable(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

// The options that a given one rules out: those that it excludes, and all others of a group that
// takes one.
std::set<const CLI::Option*> RuledOut(const CLI::App& command) {
  std::set<const CLI::Option*> out;
  for (const CLI::Option* option : OptionsOf(command)) {
    if (option->count() == 0) continue;
    for (const CLI::Option* other : option->get_excludes()) out.insert(other);
  }
  for (const CLI::App* group : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!group->get_name().empty() || group->get_require_option_max() != 1) continue;
    const std::vector<const CLI::Option*> options = OptionsOf(*group);
    if (std::any_of(options.begin(), options.end(),
                    [](const CLI::Option* option) { return option->count() > 0; })) {
      out.insert(options.begin(), options.end());
    }
  }
  return out;
}

// The entry of the command's section; or else the one for all commands.
const ConfigEntry* EntryOf(const ConfigFile& file, const std::vector<std::string>& section,
                           const std::string& key) {
  const ConfigEntry* found = nullptr;
  for (const ConfigEntry& entry : file.entries) {
    if (entry.key != key) continue;
    if (entry.section == section) return &entry;
    if (entry.section.empty()) found = &entry;
  }
  return found;
}

// TOML's true and false are "on" and "off" for a flag that takes a value.
std::vector<std::string> TextsOf(const ConfigEntry& entry, const CLI::Option& option) {
  if (!entry.is_bool || IsPresence(option)) return entry.values;
  return {entry.values.front() == "true" ? "on" : kOff};
}

bool AnyCommandHas(const CLI::App& app, const std::string& key) {
  if (key != kConfig && FindOption(app, key) != nullptr) return true;
  const std::vector<const CLI::App*> commands = CommandsOf(app);
  return std::any_of(commands.begin(), commands.end(),
                     [&](const CLI::App* command) { return AnyCommandHas(*command, key); });
}

std::vector<std::string> AllKeys(const CLI::App& app) {
  std::set<std::string> keys;
  for (const CLI::Option* option : OptionsOf(app)) keys.insert(KeyOf(*option));
  for (const CLI::App* command : CommandsOf(app)) {
    for (std::string& key : AllKeys(*command)) keys.insert(std::move(key));
  }
  return {keys.begin(), keys.end()};
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& known) {
  const std::string nearest = Nearest(word, known);
  return nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest);
}

absl::Status CheckKey(const ConfigFile& file, const ConfigEntry& entry, CLI::App& app) {
  const auto wrong = [&](const std::string& what) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", file.PlaceOf(entry), what));
  };
  if (entry.section.empty()) {
    if (AnyCommandHas(app, entry.key)) return absl::OkStatus();
    return wrong(fmt::format("no command has a flag --{}{}", entry.key,
                             DidYouMean(entry.key, AllKeys(app))));
  }
  CLI::App* at = &app;
  for (const std::string& word : entry.section) {
    CLI::App* const next = FindCommand(*at, {word});
    if (next == nullptr) {
      std::vector<std::string> names;
      for (const CLI::App* command : CommandsOf(*at)) names.push_back(command->get_name());
      return wrong(fmt::format("[{}]: there is no command {}{}", fmt::join(entry.section, "."),
                               word, DidYouMean(word, names)));
    }
    at = next;
  }
  if (entry.key != kConfig && FindOption(*at, entry.key) != nullptr) return absl::OkStatus();
  return wrong(fmt::format("`{}` has no flag --{}{}", fmt::join(entry.section, " "), entry.key,
                           Advice("--" + entry.key, *at)));
}

// For a flag without a value. nullopt: neither yes nor no.
std::optional<bool> YesOrNo(const std::string& text) {
  constexpr std::array kYes = {"true", "on", "yes", "1"}, kNo = {"false", "off", "no", "0"};
  if (std::find(kYes.begin(), kYes.end(), text) != kYes.end()) return true;
  if (std::find(kNo.begin(), kNo.end(), text) != kNo.end()) return false;
  return std::nullopt;
}

}  // namespace

std::string VariableOf(const CLI::Option& option) {
  if (!option.get_envname().empty()) return option.get_envname();
  std::string name = "STAGECOACH_";
  for (const char c : KeyOf(option)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

void AddConfigFlags(CLI::App& app) {
  for (CLI::App* command : CommandsOf(app)) AddConfigFlags(*command);
  if (app.get_parent() == nullptr || OptionsOf(app).empty()) return;
  const std::string path = DefaultConfigPath();
  app.add_option_function<std::string>(
         std::string("--") + kConfig, [](const std::string&) {},
         "TOML file with values for flags, with one section per command. off: no file. An "
         "environment variable (STAGECOACH_ and the flag's name) overrides the file, and a flag "
         "overrides both")
      ->type_name("FILE")
      ->default_str(path.empty() ? kOff : path);
}

absl::StatusOr<ConfigFile> ConfigFileOf(const CLI::App& command) {
  const CLI::Option* const option = FindOption(command, kConfig);
  if (option == nullptr) return ConfigFile{};
  std::string path;
  if (option->count() > 0) {
    path = option->results().back();
  } else {
    path = ReadVariable(VariableOf(*option)).value_or("");
  }
  if (path == kOff) return ConfigFile{};
  if (!path.empty()) return ReadConfigFile(path);
  absl::StatusOr<ConfigFile> file = ReadConfigFile(DefaultConfigPath());
  if (absl::IsNotFound(file.status())) return ConfigFile{};
  return file;
}

absl::Status CheckKeys(const ConfigFile& file, CLI::App& app) {
  for (const ConfigEntry& entry : file.entries) {
    SC_RETURN_IF_ERROR(CheckKey(file, entry, app));
  }
  return absl::OkStatus();
}

std::vector<OutsideValue> ValuesFromOutside(const CLI::App& command, const ConfigFile& file) {
  const std::set<const CLI::Option*> ruled_out = RuledOut(command);
  const std::vector<std::string> section = PathTo(command);
  std::vector<OutsideValue> values;
  for (const CLI::Option* option : OptionsOf(command)) {
    const std::string key = KeyOf(*option);
    if (option->count() > 0 || ruled_out.contains(option) || key == kConfig) continue;
    OutsideValue value{.key = key,
                       .name = NameOf(*option),
                       .values = {},
                       .place = VariableOf(*option),
                       .is_secret = !option->get_envname().empty()};
    if (const std::optional<std::string> variable = ReadVariable(value.place)) {
      value.values.push_back(*variable);
    } else if (const ConfigEntry* entry = EntryOf(file, section, key)) {
      value.values = TextsOf(*entry, *option);
      value.place = file.PlaceOf(*entry);
    } else {
      continue;
    }
    values.push_back(std::move(value));
  }
  return values;
}

absl::Status Give(const std::vector<OutsideValue>& values, CLI::App& command) {
  for (CLI::Option* option : OptionsOf(command)) {
    const auto value = std::find_if(values.begin(), values.end(), [&](const OutsideValue& one) {
      return one.key == KeyOf(*option);
    });
    if (value == values.end()) continue;
    if (!IsPresence(*option)) {
      option->add_result(value->values);
      continue;
    }
    const std::optional<bool> is_set = YesOrNo(value->values.size() == 1 ? value->values[0] : "");
    if (!is_set) {
      return absl::InvalidArgumentError(
          fmt::format("{}: {} is true or false", value->place, value->name));
    }
    if (*is_set) option->add_result("true");
  }
  return absl::OkStatus();
}

std::string PlacesOf(const std::vector<OutsideValue>& values, const std::string& message) {
  std::string lines;
  for (const OutsideValue& value : values) {
    const size_t at = message.find(value.name);
    if (at == std::string::npos) continue;
    const size_t end = at + value.name.size();
    if (end < message.size() && (std::isalnum(message[end]) != 0 || message[end] == '-')) continue;
    lines += fmt::format("{} is from {}\n", value.name, value.place);
  }
  return lines;
}

}  // namespace stagecoach::cli
