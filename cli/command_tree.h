// Looks into the commands and flags that the program has declared.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach::cli {

// The subcommands of `app` by name, without groups of options.
std::vector<CLI::App*> CommandsOf(CLI::App& app);
std::vector<const CLI::App*> CommandsOf(const CLI::App& app);

// The options and positionals of a command, including those in groups; without --help and hidden
// ones.
std::vector<CLI::Option*> OptionsOf(CLI::App& command);
std::vector<const CLI::Option*> OptionsOf(const CLI::App& command);

// "--max-tokens"; "MODEL" for the positional `model`.
std::string NameOf(const CLI::Option& option);
// "max-tokens", "model".
std::string KeyOf(const CLI::Option& option);
// The option with this key; null: there is none.
const CLI::Option* FindOption(const CLI::App& command, const std::string& key);

// Whether the option takes no value.
bool IsPresence(const CLI::Option& option);

// The innermost command that the parsed command line names.
const CLI::App& Innermost(const CLI::App& app);

// The words that lead from the program to a command: {"bench", "serve"}. Empty: the program.
std::vector<std::string> PathTo(const CLI::App& command);
// The command at the end of this path; null: there is none.
CLI::App* FindCommand(CLI::App& app, const std::vector<std::string>& path);

}  // namespace stagecoach::cli
