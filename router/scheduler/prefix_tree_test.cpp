#include "router/scheduler/prefix_tree.h"

#include "catch2/catch_test_macros.hpp"
#include "router/scheduler/testing/test_requests.h"

namespace stagecoach::router {
namespace {

constexpr size_t kBlock = kBlockTokens;

// Makes nodes for all full blocks of `tokens`, with blocks `first_block`, `first_block` + 1, ... of
// group 0.
void Insert(PrefixTree& tree, const std::string& salt, std::span<const int32_t> tokens,
            uint32_t first_block) {
  PrefixTree::Node* node = tree.PinRoot(salt);
  for (uint32_t i = 0; tokens.size() >= kBlock; ++i, tokens = tokens.subspan(kBlock)) {
    node = tree.MovePin(node, tokens.first(kBlock));
    if (node->block(0) == PrefixTree::kNoBlock) tree.SetBlock(node, 0, first_block + i);
  }
  tree.Unpin(node);
}

TEST_CASE("PrefixTree: finds the longest path of whole blocks under the salt") {
  PrefixTree tree({100});
  const auto tokens = TokenRange(5 * kBlock + 3);
  Insert(tree, "a", tokens, 10);
  CHECK(tree.n_nodes() == 5);
  const auto path = tree.Find("a", tokens);
  REQUIRE(path.size() == 5);
  CHECK(path.front()->block(0) == 10);
  CHECK(path.back()->block(0) == 14);
  CHECK(tree.Find("a", std::span(tokens).first(2 * kBlock + 15)).size() == 2);
  CHECK(tree.Find("b", tokens).empty());
  CHECK(tree.Find("", tokens).empty());
  auto others = tokens;
  others[3 * kBlock] = -1;
  CHECK(tree.Find("a", others).size() == 3);
  CHECK(tree.Find("a", std::span(tokens).subspan(kBlock)).empty());
}

TEST_CASE("PrefixTree: a path shared by two sequences splits where they differ") {
  PrefixTree tree({100});
  auto tokens = TokenRange(4 * kBlock);
  Insert(tree, "", tokens, 10);
  tokens[2 * kBlock] = -1;
  Insert(tree, "", tokens, 20);
  CHECK(tree.n_nodes() == 6);
  const auto path = tree.Find("", tokens);
  REQUIRE(path.size() == 4);
  CHECK(path[1]->block(0) == 11);
  CHECK(path[2]->block(0) == 22);
}

TEST_CASE("PrefixTree: with a scope, a node's key names the salt and all tokens up to its end") {
  PrefixTree tree({100}, "model");
  const auto tokens = TokenRange(2 * kBlock);
  Insert(tree, "a", tokens, 10);
  Insert(tree, "b", tokens, 20);
  const BlockKey first = ChildBlockKey(RootBlockKey("model", "a"), TokenRange(kBlock));
  const auto path = tree.Find("a", tokens);
  CHECK(path[0]->key() == first);
  CHECK(path[1]->key() == ChildBlockKey(first, std::span(tokens).subspan(kBlock)));
  CHECK(tree.Find("b", tokens)[1]->key() != path[1]->key());
}

TEST_CASE("PrefixTree: unused nodes are removed, starting at the end of a path") {
  PrefixTree tree({100, 100});
  const auto tokens = TokenRange(3 * kBlock);
  Insert(tree, "a", tokens, 10);
  tree.SetBlock(tree.Find("a", tokens)[2], 1, 50);
  tree.Forget(0, 11);  // inside the path: the node stays because it has a child
  CHECK_FALSE(tree.Has(0, 11));
  CHECK(tree.Find("a", tokens).size() == 3);
  CHECK(tree.Find("a", tokens)[1]->block(0) == PrefixTree::kNoBlock);
  tree.Forget(0, 12);
  CHECK(tree.n_nodes() == 3);  // the other group still has a block there
  PrefixTree::Node* const pinned = tree.Find("a", tokens)[1];
  tree.Pin(pinned);
  tree.Forget(1, 50);
  CHECK(tree.n_nodes() == 2);
  tree.Unpin(pinned);
  CHECK(tree.n_nodes() == 1);
  tree.Forget(0, 10);
  CHECK(tree.n_nodes() == 0);
  CHECK(tree.Find("a", tokens).empty());
  tree.Unpin(tree.PinRoot("a"));
  tree.Unpin(nullptr);
}

}  // namespace
}  // namespace stagecoach::router
