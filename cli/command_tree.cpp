#include "cli/command_tree.h"

#include <CLI/CLI.hpp>
#include <algorithm>

namespace stagecoach::cli {
namespace {

// CLI11 represents a group of options as a subcommand without a name.
bool IsGroup(const CLI::App& app) { return app.get_name().empty(); }

template <typename App, typename Option>
std::vector<Option*> AllOptions(App& command) {
  std::vector<Option*> options;
  for (Option* option : command.get_options()) {
    if (!option->get_group().empty() && KeyOf(*option) != "help") options.push_back(option);
  }
  for (App* group : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!IsGroup(*group)) continue;
    for (Option* option : AllOptions<App, Option>(*group)) options.push_back(option);
  }
  return options;
}

template <typename App>
std::vector<App*> AllCommands(App& app) {
  std::vector<App*> commands;
  for (App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!IsGroup(*command)) commands.push_back(command);
  }
  return commands;
}

}  // namespace

std::vector<CLI::App*> CommandsOf(CLI::App& app) { return AllCommands<CLI::App>(app); }
std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return AllCommands<const CLI::App>(app);
}

std::vector<CLI::Option*> OptionsOf(CLI::App& command) {
  return AllOptions<CLI::App, CLI::Option>(command);
}
std::vector<const CLI::Option*> OptionsOf(const CLI::App& command) {
  return AllOptions<const CLI::App, const CLI::Option>(command);
}

std::string KeyOf(const CLI::Option& option) {
  return option.get_lnames().empty() ? option.get_name() : option.get_lnames().front();
}

std::string NameOf(const CLI::Option& option) {
  if (!option.get_lnames().empty()) return "--" + option.get_lnames().front();
  std::string name = option.get_name();
  std::transform(name.begin(), name.end(), name.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return name;
}

const CLI::Option* FindOption(const CLI::App& command, const std::string& key) {
  for (const CLI::Option* option : OptionsOf(command)) {
    if (KeyOf(*option) == key) return option;
  }
  return nullptr;
}

bool IsPresence(const CLI::Option& option) { return option.get_items_expected_max() == 0; }

const CLI::App& Innermost(const CLI::App& app) {
  const std::vector<CLI::App*> named = app.get_subcommands();
  return named.empty() ? app : Innermost(*named.front());
}

std::vector<std::string> PathTo(const CLI::App& command) {
  if (command.get_parent() == nullptr) return {};
  std::vector<std::string> path = PathTo(*command.get_parent());
  path.push_back(command.get_name());
  return path;
}

CLI::App* FindCommand(CLI::App& app, const std::vector<std::string>& path) {
  CLI::App* found = &app;
  for (const std::string& word : path) {
    const std::vector<CLI::App*> commands = CommandsOf(*found);
    const auto next = std::find_if(commands.begin(), commands.end(), [&](const CLI::App* command) {
      return command->get_name() == word;
    });
    if (next == commands.end()) return nullptr;
    found = *next;
  }
  return found;
}

}  // namespace stagecoach::cli
