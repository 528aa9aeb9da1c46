#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/completion_words.h"

namespace stagecoach::cli {
namespace {

using Paths = CompletedFlag::Paths;

// Every command is a case in tables of words; a function looks them up.
constexpr char kLookUp[] = R"sh(
_stagecoach() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= i
  COMPREPLY=()
  # bash makes a word of the = in --flag=value.
  if [ "$current" = = ]; then
    current=
  elif [ "$before" = = ]; then
    before=${COMP_WORDS[COMP_CWORD-2]}
  fi
  for ((i = 1; i < COMP_CWORD; i++)); do
    case " $(_stagecoach_commands "$command") " in
      *" ${COMP_WORDS[i]} "*) command=${command:+$command }${COMP_WORDS[i]} ;;
    esac
  done
  local kind=$(_stagecoach_kind "$command" "$before")
  case $kind in
    files) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current") ;;
    folders) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- "$current") ;;
    none) ;;
    words\ *) mapfile -t COMPREPLY < <(compgen -W "${kind#words }" -- "$current") ;;
    *)
      if [[ $current == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_stagecoach_flags "$command")" -- "$current")
      elif [ -n "$(_stagecoach_commands "$command")" ]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_stagecoach_commands "$command")" -- "$current")
      else
        compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$current")
      fi ;;
  esac
}
complete -F _stagecoach stagecoach
)sh";

// "words cpu cuda", "files", "folders", or "none": nothing is known about the value.
std::string KindOf(const CompletedFlag& flag) {
  if (!flag.words.empty()) return fmt::format("words {}", fmt::join(flag.words, " "));
  if (flag.paths == Paths::kFiles) return "files";
  return flag.paths == Paths::kFolders ? "folders" : "none";
}

}  // namespace

std::string BashScript(const std::vector<CompletedCommand>& commands) {
  std::string words = "_stagecoach_commands() {\n  case $1 in\n";
  std::string flags = "_stagecoach_flags() {\n  case $1 in\n";
  std::string kinds = "_stagecoach_kind() {\n  case \"$1 $2\" in\n";
  for (const CompletedCommand& command : commands) {
    const std::string path = fmt::format("{}", fmt::join(command.path, " "));
    std::string names;
    // The words that an argument may be are completed as commands are.
    std::vector<std::string> next = command.commands;
    for (const CompletedFlag& flag : command.flags) {
      if (flag.name.empty()) {
        next.insert(next.end(), flag.words.begin(), flag.words.end());
        continue;
      }
      names += (names.empty() ? "" : " ") + flag.name;
      if (!flag.takes_value) continue;
      kinds += fmt::format("    \"{} {}\") echo '{}' ;;\n", path, flag.name, KindOf(flag));
    }
    flags += fmt::format("    \"{}\") echo '{}' ;;\n", path, names);
    if (next.empty()) continue;
    words += fmt::format("    \"{}\") echo '{}' ;;\n", path, fmt::join(next, " "));
  }
  constexpr char kEnd[] = "  esac\n}\n";
  return "# Completion for bash: source this file, or put it into\n"
         "# ~/.local/share/bash-completion/completions/stagecoach\n" +
         words + kEnd + flags + kEnd + kinds + kEnd + kLookUp;
}

}  // namespace stagecoach::cli
