// The file that gives flags their values: TOML, with a section for each command.
//
//   server = "127.0.0.1:9000"     # for every command that has --server
//   [serve]
//   model = "/srv/models/chat"
//   stages = 2
//   [bench.serve]
//   concurrency = 8
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace stagecoach::cli {

struct ConfigEntry {
  std::vector<std::string> section;  // {"bench", "serve"}; empty: for every command
  std::string key;                   // of a flag, without "--"
  std::vector<std::string> values;   // several for an array; true and false are "true" and "false"
  bool is_bool = false;
  int line = 0;
};

struct ConfigFile {
  std::string path;  // empty: there is no file
  std::vector<ConfigEntry> entries;

  std::string PlaceOf(const ConfigEntry& entry) const;  // "PATH:LINE"
};

// INVALID_ARGUMENT, with the line, if it is not TOML or has values that no flag can have; NOT_FOUND
// if it cannot be read.
absl::StatusOr<ConfigFile> ReadConfigFile(const std::string& path);

// The file that is read if no other is named: stagecoach/config.toml in $XDG_CONFIG_HOME or
// ~/.config. Empty: neither variable is set.
std::string DefaultConfigPath();

}  // namespace stagecoach::cli
