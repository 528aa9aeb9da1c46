#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/command_tree.h"
#include "cli/outside_values.h"
#include "cli/suggest.h"
#include "common/status.h"
#include "common/version.h"

namespace stagecoach::cli {
namespace {

// All commands with their flags, for one parse.
class Program {
 public:
  Program() {
    app_.require_subcommand(1);
    app_.set_version_flag("--version", std::string("stagecoach ") + kVersion);
    AddServe(app_, command_);
    AddRun(app_, command_);
    AddReplicas(app_, command_);
    AddGenerate(app_, command_);
    AddChat(app_, command_);
    AddBatch(app_, command_);
    AddBench(app_, command_);
    AddDrill(app_, command_);
    AddCheck(app_, command_);
    AddPlan(app_, command_);
    AddDoctor(app_, command_);
    AddTimeline(app_, command_);
    AddQuantize(app_, command_);
    AddKv(app_, command_);
    AddConfigFlags(app_);
    AddConfig(app_, command_);
    AddShellCompletion(app_, command_);
    app_.add_subcommand("version", "Prints the version")->callback([this] {
      command_ = [] {
        fmt::print("stagecoach {}\n", kVersion);
        return kExitOk;
      };
    });
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  CLI::App& app() { return app_; }
  int Run() const { return command_(); }

 private:
  CLI::App app_{"stagecoach serves large language models on pipeline stages."};
  Command command_;
};

// Gives the program's flags the values from outside for what the command line leaves out.
absl::StatusOr<std::vector<OutsideValue>> TakeFromOutside(Program& program, int argc, char** argv) {
  Program tried;  // tells what the command line gives
  try {
    tried.app().parse(argc, argv);
  } catch (const CLI::Success&) {  // --help and --version
    return std::vector<OutsideValue>();
  } catch (const CLI::ParseError&) {
    // What is missing may come from outside, and everything else is wrong for `program`, too.
  }
  const CLI::App& command = Innermost(tried.app());
  SC_ASSIGN_OR_RETURN(const ConfigFile file, ConfigFileOf(command));
  SC_RETURN_IF_ERROR(CheckKeys(file, program.app()));
  std::vector<OutsideValue> values = ValuesFromOutside(command, file);
  SC_RETURN_IF_ERROR(Give(values, *FindCommand(program.app(), PathTo(command))));
  return values;
}

int Main(int argc, char** argv) {
  Program program;
  const absl::StatusOr<std::vector<OutsideValue>> outside = TakeFromOutside(program, argc, argv);
  if (!outside.ok()) {
    fmt::print(stderr, "error: {}\n", std::string(outside.status().message()));
    return kExitUsage;
  }
  CLI::App& app = program.app();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const std::string unknown = UnknownWords(app, std::vector<std::string>(argv + 1, argv + argc));
    if (error.get_exit_code() != 0 && !unknown.empty()) {
      fmt::print(stderr, "error: {}\nRun with --help for more information.\n", unknown);
      return kExitUsage;
    }
    if (app.exit(error) == 0) return kExitOk;
    fmt::print(stderr, "{}", PlacesOf(*outside, error.what()));
    return kExitUsage;
  }
  return program.Run();
}

}  // namespace
}  // namespace stagecoach::cli

int main(int argc, char** argv) { return stagecoach::cli::Main(argc, argv); }
