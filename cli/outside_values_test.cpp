#include "cli/outside_values.h"

#include <stdlib.h>

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>

#include "cli/command_tree.h"

namespace stagecoach::cli {
namespace {

// A program with some kinds of flags.
struct Toy {
  Toy() {
    serve = app.add_subcommand("serve");
    serve->add_option("model", model)->required();
    serve->add_option("--stages", stages);
    serve->add_option("--prefix-cache", prefix_cache);
    serve->add_option("--cors", cors)->allow_extra_args(false);
    serve->add_option("--journal", journal)->envname("STAGECOACH_JOURNAL");
    serve->add_flag("--batch-invariant", batch_invariant);
    CLI::Option* const server = serve->add_option("--server", remote);
    serve->add_option("--own", own)->excludes(server);
    app.add_subcommand("bench")->add_subcommand("serve")->add_option("--stages", stages);
    AddConfigFlags(app);
  }

  CLI::App app;
  CLI::App* serve = nullptr;
  int stages = 1;
  std::string model, prefix_cache, journal, remote, own;
  std::vector<std::string> cors;
  bool batch_invariant = false;
};

void Parse(CLI::App& app, const std::vector<std::string>& words) {
  app.parse(std::vector<std::string>(words.rbegin(), words.rend()));
}

std::vector<OutsideValue> GiveAll(Toy& toy, const std::vector<std::string>& words,
                                  const ConfigFile& file) {
  Toy tried;
  try {
    Parse(tried.app, words);
  } catch (const CLI::ParseError&) {
  }
  std::vector<OutsideValue> values = ValuesFromOutside(Innermost(tried.app), file);
  REQUIRE(Give(values, *FindCommand(toy.app, PathTo(Innermost(tried.app)))).ok());
  Parse(toy.app, words);
  return values;
}

ConfigEntry Entry(std::vector<std::string> section, std::string key,
                  std::vector<std::string> values, bool is_bool = false) {
  return {.section = std::move(section),
          .key = std::move(key),
          .values = std::move(values),
          .is_bool = is_bool,
          .line = 7};
}

class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* const name_;
};

TEST_CASE(
    "a flag comes before a variable, a variable before the file, the file before the default") {
  const ConfigFile file{.path = "/c", .entries = {Entry({"serve"}, "stages", {"4"})}};
  const std::vector<std::string> line = {"serve", "m"};
  Toy from_file, from_variable, from_flag, from_default;
  CHECK(GiveAll(from_file, line, file).at(0).place == "/c:7");
  CHECK(from_file.stages == 4);
  GiveAll(from_default, line, {});
  CHECK(from_default.stages == 1);
  const Variable variable("STAGECOACH_STAGES", "3");
  CHECK(GiveAll(from_variable, line, file).at(0).place == "STAGECOACH_STAGES");
  CHECK(from_variable.stages == 3);
  CHECK(GiveAll(from_flag, {"serve", "m", "--stages=2"}, file).empty());
  CHECK(from_flag.stages == 2);
}

TEST_CASE("positionals, lists, switches and flags without values come from the file") {
  const ConfigFile file{
      .path = "/c",
      .entries = {Entry({}, "model", {"m"}), Entry({"serve"}, "cors", {"https://a", "https://b"}),
                  Entry({"serve"}, "prefix-cache", {"false"}, true),
                  Entry({"serve"}, "batch-invariant", {"true"}, true),
                  Entry({"bench", "serve"}, "stages", {"9"})}};
  Toy toy;
  GiveAll(toy, {"serve"}, file);
  CHECK(toy.model == "m");
  CHECK(toy.cors.size() == 2);
  CHECK(toy.prefix_cache == "off");
  CHECK(toy.batch_invariant);
  CHECK(toy.stages == 1);  // of another command
  CHECK(CheckKeys(file, toy.app).ok());
}

TEST_CASE("what contradicts a flag that is given is left out") {
  const ConfigFile file{.path = "/c", .entries = {Entry({"serve"}, "own", {"m"})}};
  Toy toy;
  CHECK(GiveAll(toy, {"serve", "m", "--server", "s"}, file).empty());
}

TEST_CASE("an error of a value names its place, and secrets are marked") {
  const Variable journal("STAGECOACH_JOURNAL", "redis://:secret@host");
  const Variable stages("STAGECOACH_STAGES", "many");
  const Toy toy;
  const std::vector<OutsideValue> values = ValuesFromOutside(*toy.serve, {});
  REQUIRE(values.size() == 2);
  CHECK(PlacesOf(values, "Could not convert: --stages = many") ==
        "--stages is from STAGECOACH_STAGES\n");
  CHECK(PlacesOf(values, "--stages-of: wrong").empty());
  CHECK(values[1].is_secret);
}

TEST_CASE("a key that stands for no flag is refused with a suggestion") {
  Toy toy;
  const auto said = [&toy](const ConfigEntry& entry) {
    return std::string(CheckKeys({.path = "/c", .entries = {entry}}, toy.app).message());
  };
  CHECK(said(Entry({"serve"}, "stage", {"1"})) ==
        "/c:7: `serve` has no flag --stage; did you mean --stages?");
  CHECK(said(Entry({"serve"}, "tp", {"1"})).find("use --stages N") != std::string::npos);
  CHECK(said(Entry({"sreve"}, "stages", {"1"})) ==
        "/c:7: [sreve]: there is no command sreve; did you mean serve?");
  CHECK(said(Entry({}, "stagse", {"1"})) ==
        "/c:7: no command has a flag --stagse; did you mean stages?");
}

}  // namespace
}  // namespace stagecoach::cli
