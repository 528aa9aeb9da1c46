#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/suggest.h"
#include "common/version.h"

int main(int argc, char** argv) {
  using namespace stagecoach::cli;
  CLI::App app("stagecoach serves large language models on pipeline stages.");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("stagecoach ") + stagecoach::kVersion);

  Command command;
  AddServe(app, command);
  AddReplicas(app, command);
  AddGenerate(app, command);
  AddChat(app, command);
  AddBatch(app, command);
  AddBench(app, command);
  AddDrill(app, command);
  AddCheck(app, command);
  AddPlan(app, command);
  AddDoctor(app, command);
  AddTimeline(app, command);
  AddKv(app, command);
  app.add_subcommand("version", "Prints the version")->callback([&command] {
    command = [] {
      fmt::print("stagecoach {}\n", stagecoach::kVersion);
      return kExitOk;
    };
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = UnknownWords(app, std::vector<std::string>(argv + 1, argv + argc));
    if (error.get_exit_code() != 0 && !unknown.empty()) {
      fmt::print(stderr, "error: {}\nRun with --help for more information.\n", unknown);
      return kExitUsage;
    }
    return app.exit(error) == 0 ? kExitOk : kExitUsage;
  }
  return command();
}
