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

TEST_CASE("Only what is given is set") {
  CHECK(Parse("") == "");
  CHECK(Parse("--temperature 0 --top-k -1 --seed 18446744073709551615 --max-tokens 5") ==
        "temperature: 0 top_k: -1 seed: 18446744073709551615 max_tokens: 5");
  CHECK(Parse("--stop a --stop 'b c' --stop-token-ids 1,2 --ignore-eos") ==
        "stop: \"a\" stop: \"b c\" stop_token_ids: 1 stop_token_ids: 2 ignore_eos: true");
  CHECK(Parse("--logprobs 5 --prompt-logprobs") == "logprobs: 5 prompt_logprobs: 0");
  CHECK(Parse("--prompt-logprobs 3 --n 2") == "n: 2 prompt_logprobs: 3");
}

TEST_CASE("What is no value is refused") {
  CHECK_THROWS_AS(Parse("--max-tokens many"), CLI::ParseError);
  CHECK_THROWS_AS(Parse("--prompt-logprobs many"), CLI::ParseError);
  CHECK_THROWS_AS(Parse("--temperature -1"), CLI::ParseError);
}

}  // namespace
}  // namespace stagecoach::cli
