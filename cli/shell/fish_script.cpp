#include <fmt/format.h>
#include <fmt/ranges.h>

#include "absl/strings/str_replace.h"
#include "cli/shell/completion_words.h"

namespace stagecoach::cli {
namespace {

using Paths = CompletedFlag::Paths;

std::string InFishQuotes(const std::string& text) {
  return "'" + absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}) + "'";
}

// True while the words typed so far lead to exactly this command.
std::string ConditionOf(const CompletedCommand& command) {
  return fmt::format("'__stagecoach_at {}'", fmt::join(command.path, " "));
}

std::string FlagLine(const CompletedFlag& flag, const std::string& at) {
  std::string line = "complete -c stagecoach -n " + at;
  if (!flag.name.empty()) line += fmt::format(" -l {}", flag.name.substr(2));
  if (flag.takes_value && !flag.name.empty()) line += " -r";
  if (flag.paths == Paths::kFiles) {
    line += " -F";
  } else if (flag.paths == Paths::kFolders) {
    line += " -f -a '(__fish_complete_directories)'";
  } else {
    line += " -f";
  }
  if (!flag.words.empty()) line += fmt::format(" -a '{}'", fmt::join(flag.words, " "));
  return line + " -d " + InFishQuotes(flag.help) + "\n";
}

// Looks for the command among the words, as the program does.
constexpr char kAt[] = R"sh(
function __stagecoach_at
  set -l path
  for word in (commandline -opc)[2..-1]
    if contains -- (string join ' ' -- $path $word) $__stagecoach_paths
      set -a path $word
    end
  end
  test "$path" = "$argv"
end
)sh";

}  // namespace

std::string FishScript(const std::vector<CompletedCommand>& commands) {
  std::string paths, lines;
  for (const CompletedCommand& command : commands) {
    if (!command.path.empty()) paths += fmt::format(" '{}'", fmt::join(command.path, " "));
    const std::string at = ConditionOf(command);
    for (const std::string& word : command.commands) {
      std::vector<std::string> path = command.path;
      path.push_back(word);
      std::string help;
      for (const CompletedCommand& one : commands) {
        if (one.path == path) help = one.help;
      }
      lines += fmt::format("complete -c stagecoach -n {} -f -a {} -d {}\n", at, word,
                           InFishQuotes(help));
    }
    for (const CompletedFlag& flag : command.flags) lines += FlagLine(flag, at);
  }
  return "# Completion for fish: put this file into ~/.config/fish/completions/stagecoach.fish\n"
         "set -g __stagecoach_paths" +
         paths + "\n" + kAt + lines;
}

}  // namespace stagecoach::cli
