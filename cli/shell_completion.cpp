#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/shell/completion_words.h"

namespace stagecoach::cli {

void AddShellCompletion(CLI::App& app, Command& command) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand(
      "completion", "Prints a shell script that completes commands, flags and their values");
  completion->add_option("shell", *shell, "Shell that reads the script")
      ->type_name("SHELL")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  completion->footer("For the current shell: source <(stagecoach completion bash)");
  completion->callback([&app, shell, &command] {
    command = [&app, shell] {
      const std::vector<CompletedCommand> commands = CompletedCommands(app);
      fmt::print("{}", *shell == "bash"  ? BashScript(commands)
                       : *shell == "zsh" ? ZshScript(commands)
                                         : FishScript(commands));
      return kExitOk;
    };
  });
}

}  // namespace stagecoach::cli
