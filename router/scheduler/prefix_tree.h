// The prefix cache's index: maps token prefixes to the KV blocks that hold their keys and values,
// so that a sequence that begins like an earlier one need not recompute them. A node stands for the
// tokens of one full block after its parent's tokens, under a salt that separates tenants. Lookups
// compare the tokens themselves, so two different prefixes never match.
//
// The design is a radix tree over whole blocks (Zheng et al. 2024, "SGLang: Efficient Execution of
// Structured Language Model Programs").
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "common/kv_block.h"
#include "router/scheduler/block_key.h"

namespace stagecoach::router {

// Unsigned, as positions are here.
inline constexpr uint32_t kBlockTokens = kKvBlockTokens;

// Not thread-safe.
class PrefixTree {
 public:
  static constexpr uint32_t kNoBlock = UINT32_MAX;

  class Node {
   public:
    uint32_t block(int group) const { return blocks_[static_cast<size_t>(group)]; }
    // The name of its block in the KV store. REQUIRES: the tree has a scope.
    const BlockKey& key() const { return key_; }
    bool is_root() const { return parent_ == nullptr; }
    const Node* parent() const { return parent_; }  // null: a root
    // REQUIRES: !is_root().
    std::span<const int32_t> tokens() const { return tokens_; }
    bool salted() const { return salted_; }  // its salt is not empty

   private:
    friend class PrefixTree;
    Node* parent_ = nullptr;  // null: the root of a salt
    std::array<int32_t, kBlockTokens> tokens_{};
    std::string salt_;  // only in roots
    bool salted_ = false;
    BlockKey key_{};                // zeros without a scope
    std::vector<uint32_t> blocks_;  // by group; kNoBlock: none
    uint32_t n_blocks_ = 0;
    uint32_t n_users_ = 0;  // children and pins
  };

  // n_blocks: per group. scope: of the nodes' keys (block_key.h); empty: nodes have none.
  explicit PrefixTree(const std::vector<uint32_t>& n_blocks, std::string scope = "");
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // The longest path from the salt's root that matches `tokens`; an incomplete last block is
  // ignored. Valid until a node is forgotten or unpinned.
  std::vector<Node*> Find(const std::string& salt, std::span<const int32_t> tokens) const;

  // A pinned node stays in the tree. PinRoot creates the root if necessary. Unpin ignores null.
  Node* PinRoot(const std::string& salt);
  void Pin(Node* node);
  void Unpin(Node* node);
  // The node's ancestor of n generations before; the node itself if n is 0. REQUIRES: there is one.
  static Node* Ancestor(Node* node, size_t n) {
    for (; n > 0; --n) node = node->parent_;
    return node;
  }
  // Moves the pin to the child with these kBlockTokens tokens; creates the child if necessary.
  Node* MovePin(Node* node, std::span<const int32_t> tokens);

  // REQUIRES: the node has no block of this group, and no node has the block.
  void SetBlock(Node* node, int group, uint32_t block);
  bool Has(int group, uint32_t block) const {
    return of_block_[static_cast<size_t>(group)][block] != nullptr;
  }
  // REQUIRES: Has(group, block).
  const Node& NodeOf(int group, uint32_t block) const {
    return *of_block_[static_cast<size_t>(group)][block];
  }
  // The block's contents are about to be overwritten. REQUIRES: Has(group, block).
  void Forget(int group, uint32_t block);

  const std::string& scope() const { return scope_; }
  size_t n_nodes() const { return children_.size(); }  // without roots

 private:
  using Key = std::pair<const Node*, std::array<int32_t, kBlockTokens>>;
  static Key KeyOf(const Node* parent, std::span<const int32_t> tokens);
  std::unique_ptr<Node> NewNode() const;
  // Erases the node and its ancestors, up to the first that is still in use.
  void EraseIfUnused(Node* node);

  const std::string scope_;
  absl::flat_hash_map<std::string, std::unique_ptr<Node>> roots_;
  absl::flat_hash_map<Key, std::unique_ptr<Node>> children_;
  std::vector<std::vector<Node*>> of_block_;  // by group, by block; null: no node has it
};

}  // namespace stagecoach::router
