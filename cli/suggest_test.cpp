#include "cli/suggest.h"

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

TEST_CASE("a typing error gets a suggestion, an unrelated word does not") {
  const std::vector<std::string> known = {"serve", "generate", "chat", "check"};
  CHECK(Nearest("sreve", known) == "serve");
  CHECK(Nearest("genrate", known) == "generate");
  CHECK(Nearest("chekc", known) == "check");
  CHECK(Nearest("fly", known).empty());
  CHECK(Nearest("", known).empty());
}

// The error message for a command line.
std::string Said(const std::vector<std::string>& arguments) {
  CLI::App app;
  app.require_subcommand(1);
  CLI::App* serve = app.add_subcommand("serve");
  std::string model, http, length;
  serve->add_option("model", model);
  serve->add_option("--http", http);
  serve->add_option("--max-model-len", length);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError&) {
  }
  return UnknownWords(app, arguments);
}

TEST_CASE("flags of other servers get the names of ours, in the order given") {
  CHECK(Said({"serve", "m", "--port", "8000", "--quantization", "awq", "--max-model-lne=7"}) ==
        "unknown flag --port; use --http 127.0.0.1:8000, and --grpc HOST:PORT\n"
        "unknown flag --quantization; weights keep the checkpoint's encoding: use a quantized "
        "checkpoint\n"
        "unknown flag --max-model-lne; did you mean --max-model-len?");
  CHECK(Said({"serve", "--model", "m"}) ==
        "unknown flag --model; give the model without a flag: stagecoach serve m");
  CHECK(Said({"serve", "m", "--zzz"}) == "unknown flag --zzz");
  CHECK(Said({"serve", "m", "-c", "4096"}) ==
        "unknown flag -c; use --max-model-len 4096: tokens of one sequence, not of all together; 0 "
        "is the model's limit");
  CHECK(Said({"serve", "m", "--ctx-size=512", "--host"}) ==
        "unknown flag --ctx-size; use --max-model-len 512: tokens of one sequence, not of all "
        "together; 0 is the model's limit\n"
        "unknown flag --host; use --http HOST:8000, and --grpc HOST:PORT");
}

TEST_CASE("an unknown command gets the nearest command as a suggestion") {
  CHECK(Said({"sreve", "m"}) == "unknown command sreve; did you mean serve?");
  CHECK(Said({"fly"}) == "unknown command fly");
  CHECK(Said({"serve", "m", "n"}) == "unexpected argument n");
  CHECK(Said({"serve", "m"}).empty());
}

}  // namespace
}  // namespace stagecoach::cli
