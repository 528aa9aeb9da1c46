#include "router/replicas/prefix_index.h"

#include "catch2/catch_test_macros.hpp"
#include "common/kv_block.h"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

PrefixIndex::Blocks Of(size_t n_blocks, int32_t first_token, const std::string& salt = "") {
  return PrefixIndex::BlocksOf(salt, TokenRange(n_blocks * kKvBlockTokens, first_token));
}

TEST_CASE("A block stands for its tokens and all before them, under a salt") {
  std::vector<int32_t> tokens = TokenRange(3 * kKvBlockTokens + 5);
  const auto blocks = PrefixIndex::BlocksOf("", tokens);
  REQUIRE(blocks.size() == 3);
  CHECK(PrefixIndex::BlocksOf("tenant", tokens)[0] != blocks[0]);
  tokens[0] = 77;
  const auto others = PrefixIndex::BlocksOf("", tokens);
  for (size_t i = 0; i < 3; ++i) CHECK(others[i] != blocks[i]);
  CHECK(PrefixIndex::BlocksOf("", {}).empty());
}

TEST_CASE("The index finds the longest beginning that it was given") {
  PrefixIndex index(100);
  index.Use(Of(4, 0));
  CHECK(index.NRemembered(Of(4, 0)) == 4);
  CHECK(index.NRemembered(Of(9, 0)) == 4);
  CHECK(index.NRemembered(Of(2, 0)) == 2);
  CHECK(index.NRemembered(Of(4, 1)) == 0);
  CHECK(index.NRemembered(Of(4, 0, "tenant")) == 0);
  index.Clear();
  CHECK(index.NRemembered(Of(4, 0)) == 0);
  CHECK(index.n_blocks() == 0);
}

TEST_CASE("A full index forgets what was used longest ago, from the end of a prompt") {
  PrefixIndex index(8);
  index.Use(Of(4, 0));
  index.Use(Of(4, 1000));
  index.Use(Of(4, 0));
  index.Use(Of(2, 2000));
  CHECK(index.n_blocks() == 8);
  CHECK(index.NRemembered(Of(4, 0)) == 4);
  CHECK(index.NRemembered(Of(4, 1000)) == 2);
  CHECK(index.NRemembered(Of(2, 2000)) == 2);
}

}  // namespace
}  // namespace stagecoach::router
