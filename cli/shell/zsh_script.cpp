#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

#include "absl/strings/str_replace.h"
#include "cli/shell/completion_words.h"

namespace stagecoach::cli {
namespace {

using Paths = CompletedFlag::Paths;

// In single quotes, in the terms of _arguments.
std::string Escaped(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

std::string FunctionOf(const CompletedCommand& command) {
  std::string name = "_stagecoach";
  for (const std::string& word : command.path) name += "_" + word;
  return name;
}

std::string ActionOf(const CompletedFlag& flag) {
  if (!flag.words.empty()) return fmt::format("({})", fmt::join(flag.words, " "));
  if (flag.paths == Paths::kFiles) return "_files";
  return flag.paths == Paths::kFolders ? "_files -/" : " ";
}

// An argument of _arguments.
std::string SpecOf(const CompletedFlag& flag) {
  if (flag.name.empty()) return fmt::format("'*:{}:{}'", Escaped(flag.help), ActionOf(flag));
  if (!flag.takes_value) return fmt::format("'{}[{}]'", flag.name, Escaped(flag.help));
  return fmt::format("'*{}=[{}]:value:{}'", flag.name, Escaped(flag.help), ActionOf(flag));
}

const CompletedCommand& Find(const std::vector<CompletedCommand>& commands,
                             std::vector<std::string> path, const std::string& last) {
  path.push_back(last);
  for (const CompletedCommand& command : commands) {
    if (command.path == path) return command;
  }
  return commands.front();
}

std::string Function(const CompletedCommand& command,
                     const std::vector<CompletedCommand>& commands) {
  std::string text = FunctionOf(command) + "() {\n";
  if (command.commands.empty()) {
    text += "  _arguments -S";
    bool has_positional = false;
    for (const CompletedFlag& flag : command.flags) {
      if (flag.name.empty() && std::exchange(has_positional, true)) continue;
      text += " \\\n    " + SpecOf(flag);
    }
    return text + "\n}\n";
  }
  text += "  if (( CURRENT == 2 )); then\n    local -a commands=(";
  for (const std::string& word : command.commands) {
    text += fmt::format("\n      '{}:{}'", word, Escaped(Find(commands, command.path, word).help));
  }
  text += ")\n    _describe command commands\n    return\n  fi\n  shift words; (( CURRENT-- ))\n";
  text += "  case $words[1] in\n";
  for (const std::string& word : command.commands) {
    text += fmt::format("    {}) {} ;;\n", word, FunctionOf(Find(commands, command.path, word)));
  }
  return text + "  esac\n}\n";
}

}  // namespace

std::string ZshScript(const std::vector<CompletedCommand>& commands) {
  std::string text =
      "#compdef stagecoach\n"
      "# Completion for zsh: put this file as _stagecoach into a folder of $fpath\n";
  for (const CompletedCommand& command : commands) text += Function(command, commands);
  // As a file of $fpath, its first call completes; sourced, it says which function does.
  return text +
         "if [ \"$funcstack[1]\" = _stagecoach ]; then\n  _stagecoach \"$@\"\nelse\n"
         "  compdef _stagecoach stagecoach\nfi\n";
}

}  // namespace stagecoach::cli
