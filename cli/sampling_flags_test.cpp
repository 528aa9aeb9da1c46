#include "cli/sampling_flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::cli {
namespace {

std::string Parse(const std::string& args) {
  v1::SamplingParams sampling;
  CLI::App app;
  AddSamplingFlags(app, sampling);
  AddLogprobFlags(app, sampling);
  app.parse(args);
  return sampling.ShortDebugString();
}

TEST_CASE("Only given flags are set") {
  CHECK(Parse("") == "");
  CHECK(Parse("--temperature 0 --top-k -1 --seed 18446744073709551615 --max-tokens 5") ==
        "temperature: 0 top_k: -1 seed: 18446744073709551615 max_tokens: 5");
  CHECK(Parse("--stop a --stop 'b c' --stop-token-ids 1,2 --ignore-eos") ==
        "stop: \"a\" stop: \"b c\" stop_token_ids: 1 stop_token_ids: 2 ignore_eos: true");
  CHECK(Parse("--logprobs 5 --prompt-logprobs") == "logprobs: 5 prompt_logprobs: 0");
  CHECK(Parse("--prompt-logprobs 3 --n 2") == "n: 2 prompt_logprobs: 3");
}

TEST_CASE("Invalid values are refused") {
  CHECK_THROWS_AS(Parse("--max-tokens many"), CLI::ParseError);
  CHECK_THROWS_AS(Parse("--prompt-logprobs many"), CLI::ParseError);
  CHECK_THROWS_AS(Parse("--temperature -1"), CLI::ParseError);
  CHECK_THROWS_AS(Parse("--top-k 1.5"), CLI::ParseError);
}

TEST_CASE("The error for a number out of range states the range") {
  try {
    Parse("--top-p 0");
    FAIL("was taken");
  } catch (const CLI::ParseError& error) {
    CHECK(std::string(error.what()) == "--top-p: must be in (0, 1], not 0");
  }
  for (const char* args :
       {"--temperature nan", "--temperature inf", "--top-k -2", "--min-p 1.1", "--top-n-sigma -2",
        "--presence-penalty -2.1", "--repetition-penalty 0"}) {
    INFO(args);
    CHECK_THROWS_AS(Parse(args), CLI::ParseError);
  }
  CHECK(
      Parse(
          "--top-p 1 --min-p 0 --top-n-sigma 1.5 --presence-penalty -2 --repetition-penalty 0.5") ==
      "top_p: 1 min_p: 0 presence_penalty: -2 repetition_penalty: 0.5 top_n_sigma: 1.5");
}

}  // namespace
}  // namespace stagecoach::cli
