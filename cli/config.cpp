#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/command_tree.h"
#include "cli/outside_values.h"
#include "common/status.h"

namespace stagecoach::cli {
namespace {

// The commands without subcommands, below `app`.
std::vector<const CLI::App*> Leaves(const CLI::App& app) {
  std::vector<const CLI::App*> leaves;
  const std::vector<const CLI::App*> commands = CommandsOf(app);
  if (commands.empty()) leaves.push_back(&app);
  for (const CLI::App* command : commands) {
    for (const CLI::App* leaf : Leaves(*command)) leaves.push_back(leaf);
  }
  return leaves;
}

absl::StatusOr<std::string> Values(CLI::App& app, const CLI::App& own,
                                   const std::vector<std::string>& path) {
  SC_ASSIGN_OR_RETURN(const ConfigFile file, ConfigFileOf(own));
  SC_RETURN_IF_ERROR(CheckKeys(file, app));
  const CLI::App* const command = FindCommand(app, path);
  if (command == nullptr) {
    return absl::InvalidArgumentError(fmt::format("there is no command {}", fmt::join(path, " ")));
  }
  std::string text = fmt::format("file: {}\n", file.path.empty() ? "none" : file.path);
  for (const CLI::App* leaf : Leaves(*command)) {
    for (const OutsideValue& value : ValuesFromOutside(*leaf, file)) {
      text += fmt::format("{} {} {}  ({})\n", fmt::join(PathTo(*leaf), " "), value.name,
                          value.is_secret ? "..." : fmt::format("{}", fmt::join(value.values, " ")),
                          value.place);
    }
  }
  return text;
}

}  // namespace

void AddConfig(CLI::App& app, Command& command) {
  auto path = std::make_shared<std::vector<std::string>>();
  CLI::App* config = app.add_subcommand(
      "config",
      "Prints which flags get their values from the environment or the configuration file, and "
      "where each value comes from. Hides values that may have a password");
  config
      ->add_option("command", *path,
                   "Command whose flags to print, such as serve (default: all commands)")
      ->type_name("COMMAND");
  AddConfigFlags(*config);
  config->callback([&app, config, path, &command] {
    command = [&app, config, path] {
      const absl::StatusOr<std::string> text = Values(app, *config, *path);
      if (!text.ok()) {
        fmt::print(stderr, "error: {}\n", std::string(text.status().message()));
        return kExitUsage;
      }
      fmt::print("{}", *text);
      return kExitOk;
    };
  });
}

}  // namespace stagecoach::cli
