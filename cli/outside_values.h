// Gives flags that the command line leaves out their values from environment variables and, below
// them, from the configuration file.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/config_file.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach::cli {

struct OutsideValue {
  std::string key;                  // "max-tokens", or a positional's name
  std::string name;                 // "--max-tokens"
  std::vector<std::string> values;  // as on the command line; empty: a flag without value, not set
  std::string place;                // "STAGECOACH_MAX_TOKENS", or "PATH:LINE"
  bool is_secret = false;           // may have a password
};

// The variable that stands for an option: STAGECOACH_MAX_TOKENS for --max-tokens.
std::string VariableOf(const CLI::Option& option);

// Adds --config to every command of the program that has flags.
void AddConfigFlags(CLI::App& app);

// The file that the command's parsed arguments, its variable or its default place name.
absl::StatusOr<ConfigFile> ConfigFileOf(const CLI::App& command);

// INVALID_ARGUMENT for an entry of the file that stands for no flag of the program's commands, with
// a suggestion.
absl::Status CheckKeys(const ConfigFile& file, CLI::App& app);

// The values from outside for the options of `command` that have no value yet, and contradict none
// that has one.
std::vector<OutsideValue> ValuesFromOutside(const CLI::App& command, const ConfigFile& file);

// Gives them to `command`, which was not parsed yet.
absl::Status Give(const std::vector<OutsideValue>& values, CLI::App& command);

// Lines that say where the values come from that an error message names; empty: it names none.
std::string PlacesOf(const std::vector<OutsideValue>& values, const std::string& message);

}  // namespace stagecoach::cli
