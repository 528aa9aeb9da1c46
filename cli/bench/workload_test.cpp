#include "cli/bench/workload.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::bench {
namespace {

std::vector<std::vector<int32_t>> Prompts(const RandomWorkload& workload) {
  std::vector<std::vector<int32_t>> prompts;
  for (const Request& request : RandomRequests(workload)) {
    const auto& ids = std::get<v1::GenerateRequest>(request).tokens().ids();
    prompts.emplace_back(ids.begin(), ids.end());
  }
  return prompts;
}

TEST_CASE("lengths and token ids follow the options and the seed") {
  const RandomWorkload workload{
      .n_requests = 20, .input_tokens = 50, .output_tokens = 7, .seed = 3, .vocab_size = 11};
  const auto prompts = Prompts(workload);
  REQUIRE(prompts.size() == 20);
  for (const auto& prompt : prompts) {
    CHECK(prompt.size() == 50);
    CHECK(std::ranges::all_of(prompt, [](int32_t id) { return id >= 0 && id < 11; }));
  }
  CHECK(prompts == Prompts(workload));
  CHECK(prompts[0] != prompts[1]);
  for (const Request& request : RandomRequests(workload)) {
    const auto& sampling = std::get<v1::GenerateRequest>(request).sampling();
    CHECK(sampling.max_tokens() == 7);
    CHECK(sampling.ignore_eos());
  }
}

TEST_CASE("lengths with a spread vary within their bounds") {
  const auto prompts = Prompts({.n_requests = 200,
                                .input_tokens = 100,
                                .output_tokens = 1,
                                .spread = 0.5,
                                .vocab_size = 1000});
  const auto [least, most] = std::ranges::minmax(
      prompts, {}, [](const std::vector<int32_t>& prompt) { return prompt.size(); });
  CHECK(least.size() >= 50);
  CHECK(most.size() <= 150);
  CHECK(least.size() < most.size());
}

TEST_CASE("prompts take turns with the shared prefixes, and the rest of each prompt is unique") {
  const auto prompts = Prompts({.n_requests = 6,
                                .input_tokens = 40,
                                .output_tokens = 1,
                                .prefix_tokens = 32,
                                .n_prefixes = 2,
                                .vocab_size = 1 << 20});
  const auto same_prefix = [&](size_t a, size_t b) {
    return std::equal(prompts[a].begin(), prompts[a].begin() + 32, prompts[b].begin());
  };
  CHECK(same_prefix(0, 2));
  CHECK(same_prefix(1, 5));
  CHECK_FALSE(same_prefix(0, 1));
  CHECK(prompts[0] != prompts[2]);
}

}  // namespace
}  // namespace stagecoach::bench
