// What a shell can complete after each command, read from the declarations of commands and flags.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace stagecoach::cli {

struct CompletedFlag {
  std::string name;  // "--device"; empty: a positional
  std::string help;  // the first sentence of its help, without line breaks
  bool takes_value = true;
  std::vector<std::string> words;  // the values that it may have; empty: any
  enum class Paths { kNone, kFiles, kFolders } paths = Paths::kNone;
};

struct CompletedCommand {
  std::vector<std::string> path;  // {"bench", "serve"}; empty: the program
  std::string help;               // its first sentence
  std::vector<std::string> commands;
  std::vector<CompletedFlag> flags;
};

// The program and all commands below it, each before its own subcommands.
std::vector<CompletedCommand> CompletedCommands(const CLI::App& app);

// The scripts for the program `stagecoach`.
std::string BashScript(const std::vector<CompletedCommand>& commands);
std::string ZshScript(const std::vector<CompletedCommand>& commands);
std::string FishScript(const std::vector<CompletedCommand>& commands);

}  // namespace stagecoach::cli
