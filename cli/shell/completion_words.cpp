#include "cli/shell/completion_words.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/command_tree.h"

namespace stagecoach::cli {
namespace {

std::string FirstSentence(std::string text) {
  text = text.substr(0, std::min(text.find('\n'), text.size()));
  for (const char* end : {". ", ": ", "; ", " ("}) text = text.substr(0, text.find(end));
  return text;
}

// The words in "TYPE:{cpu,cuda}", as CLI11 describes a value out of several, and in "on|off".
std::vector<std::string> WordsOf(const std::string& type) {
  const size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    return absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
  }
  const bool is_choice =
      type.find('|') != std::string::npos && std::all_of(type.begin(), type.end(), [](char c) {
        return c == '|' || c == '-' || (c >= 'a' && c <= 'z');
      });
  if (!is_choice) return {};
  return absl::StrSplit(type, '|');
}

CompletedFlag::Paths PathsOf(const std::string& type) {
  if (type.starts_with("FILE") || type.starts_with("MODEL") || type.starts_with("PATH")) {
    return CompletedFlag::Paths::kFiles;
  }
  return type.starts_with("DIR") ? CompletedFlag::Paths::kFolders : CompletedFlag::Paths::kNone;
}

CompletedFlag FlagOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const std::string name = NameOf(option);
  return {.name = name.starts_with("--") ? name : "",
          .help = FirstSentence(option.get_description()),
          .takes_value = !IsPresence(option),
          .words = WordsOf(type),
          .paths = PathsOf(type)};
}

void Collect(const CLI::App& app, std::vector<CompletedCommand>& all) {
  CompletedCommand command{.path = PathTo(app),
                           .help = FirstSentence(app.get_description()),
                           .commands = {},
                           .flags = {}};
  for (const CLI::Option* option : OptionsOf(app)) command.flags.push_back(FlagOf(*option));
  command.flags.push_back(
      {.name = "--help", .help = "Prints the flags", .takes_value = false, .words = {}});
  for (const CLI::App* inner : CommandsOf(app)) command.commands.push_back(inner->get_name());
  all.push_back(std::move(command));
  for (const CLI::App* inner : CommandsOf(app)) Collect(*inner, all);
}

}  // namespace

std::vector<CompletedCommand> CompletedCommands(const CLI::App& app) {
  std::vector<CompletedCommand> all;
  Collect(app, all);
  return all;
}

}  // namespace stagecoach::cli
