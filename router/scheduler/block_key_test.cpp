#include "router/scheduler/block_key.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

std::string Hex(const BlockKey& key) { return fmt::format("{:02x}", fmt::join(key, "")); }

// Servers of different versions share a store, so keys must never change. Python's hashlib gives
// the same.
TEST_CASE("Block keys are what they have always been") {
  CHECK(Hex(RootBlockKey("", "")) == "374708fff7719dd5979ec875d56cd228");
  CHECK(Hex(RootBlockKey("model-a", "")) == "6b7239d77e2f7fc61d1fe3a40babd0a3");
  const BlockKey root = RootBlockKey("model-a", "salt");
  CHECK(Hex(root) == "5f557afb051a8daa49e4cad423d5d965");
  const BlockKey first = ChildBlockKey(root, TokenRange(16));
  CHECK(Hex(first) == "47af39fddca1a65a30153c3bf254943b");
  std::vector<int32_t> tokens(16, 70000);
  tokens[0] = -1;
  CHECK(Hex(ChildBlockKey(first, tokens)) == "2ec8954db42e2d8082d42eb1e86e11a7");
}

TEST_CASE("Owners are what they have always been") {
  CHECK(KvOwner("") == 0);
  CHECK(KvOwner("chatbot") == 0x386ebc0efd04339a);
}

TEST_CASE("Scope and salt are not mixed up") {
  CHECK(RootBlockKey("ab", "c") != RootBlockKey("a", "bc"));
  CHECK(RootBlockKey("ab", "") != RootBlockKey("", "ab"));
}

}  // namespace
}  // namespace stagecoach::router
