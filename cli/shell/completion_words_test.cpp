#include "cli/shell/completion_words.h"

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

using Paths = CompletedFlag::Paths;

TEST_CASE("commands, flags, and what their values can be are read from the declarations") {
  CLI::App app("A program. With more to say");
  CLI::App* serve = app.add_subcommand("serve", "Serves a model: starts processes");
  std::string text;
  bool on = false;
  serve->add_option("model", text, "A folder")->type_name("MODEL");
  serve->add_option("--device", text, "Where it runs (default: cpu)")
      ->type_name("DEVICE")
      ->check(CLI::IsMember({"cpu", "cuda"}));
  serve->add_option("--cache", text, "Kept. Always")->type_name("on|off");
  serve->add_option("--dir", text, "")->type_name("DIR");
  serve->add_option("--hidden", text, "")->group("");
  serve->add_flag("--fast", on, "Hurries");
  app.add_subcommand("bench", "Measures")->add_subcommand("serve", "Under load");

  const std::vector<CompletedCommand> commands = CompletedCommands(app);
  REQUIRE(commands.size() == 4);
  CHECK(commands[0].commands == std::vector<std::string>{"serve", "bench"});
  CHECK(commands[1].help == "Serves a model");
  CHECK(commands[3].path == std::vector<std::string>{"bench", "serve"});
  const std::vector<CompletedFlag>& flags = commands[1].flags;
  REQUIRE(flags.size() == 6);
  CHECK((flags[0].name.empty() && flags[0].paths == Paths::kFiles));
  CHECK(flags[1].words == std::vector<std::string>{"cpu", "cuda"});
  CHECK(flags[1].help == "Where it runs");
  CHECK(flags[2].words == std::vector<std::string>{"on", "off"});
  CHECK(flags[3].paths == Paths::kFolders);
  CHECK(!flags[4].takes_value);
  CHECK(flags[5].name == "--help");
  for (const std::string& script :
       {BashScript(commands), ZshScript(commands), FishScript(commands)}) {
    CHECK(script.find("cuda") != std::string::npos);
    CHECK(script.find("hidden") == std::string::npos);
  }
}

}  // namespace
}  // namespace stagecoach::cli
