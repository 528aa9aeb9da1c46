#include "router/scheduler/prefix_tree.h"

#include <algorithm>

#include "common/check.h"

namespace stagecoach::router {

PrefixTree::PrefixTree(const std::vector<uint32_t>& n_blocks, std::string scope)
    : scope_(std::move(scope)) {
  for (uint32_t n : n_blocks) of_block_.emplace_back(n, nullptr);
}

PrefixTree::~PrefixTree() = default;

PrefixTree::Key PrefixTree::KeyOf(const Node* parent, std::span<const int32_t> tokens) {
  SC_CHECK(tokens.size() == kBlockTokens);
  Key key{parent, {}};
  std::copy(tokens.begin(), tokens.end(), key.second.begin());
  return key;
}

std::unique_ptr<PrefixTree::Node> PrefixTree::NewNode() const {
  auto node = std::make_unique<Node>();
  node->blocks_.assign(of_block_.size(), kNoBlock);
  return node;
}

std::vector<PrefixTree::Node*> PrefixTree::Find(const std::string& salt,
                                                std::span<const int32_t> tokens) const {
  std::vector<Node*> path;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return path;
  const Node* node = root->second.get();
  for (; tokens.size() >= kBlockTokens; tokens = tokens.subspan(kBlockTokens)) {
    const auto child = children_.find(KeyOf(node, tokens.first(kBlockTokens)));
    if (child == children_.end()) break;
    path.push_back(child->second.get());
    node = path.back();
  }
  return path;
}

PrefixTree::Node* PrefixTree::PinRoot(const std::string& salt) {
  std::unique_ptr<Node>& root = roots_[salt];
  if (root == nullptr) {
    root = NewNode();
    root->salt_ = salt;
    root->salted_ = !salt.empty();
    if (!scope_.empty()) root->key_ = RootBlockKey(scope_, salt);
  }
  Pin(root.get());
  return root.get();
}

void PrefixTree::Pin(Node* node) { ++node->n_users_; }

void PrefixTree::Unpin(Node* node) {
  if (node == nullptr) return;
  SC_CHECK(node->n_users_ > 0);
  --node->n_users_;
  EraseIfUnused(node);
}

PrefixTree::Node* PrefixTree::MovePin(Node* node, std::span<const int32_t> tokens) {
  Key key = KeyOf(node, tokens);
  std::unique_ptr<Node>& child = children_[key];
  if (child == nullptr) {
    child = NewNode();
    child->parent_ = node;
    child->tokens_ = key.second;
    child->salted_ = node->salted_;
    if (!scope_.empty()) child->key_ = ChildBlockKey(node->key_, tokens);
    ++node->n_users_;
  }
  Node* const moved = child.get();
  Pin(moved);
  Unpin(node);
  return moved;
}

void PrefixTree::SetBlock(Node* node, int group, uint32_t block) {
  const auto g = static_cast<size_t>(group);
  SC_CHECK(node->blocks_[g] == kNoBlock && of_block_[g][block] == nullptr);
  node->blocks_[g] = block;
  of_block_[g][block] = node;
  ++node->n_blocks_;
}

void PrefixTree::Forget(int group, uint32_t block) {
  const auto g = static_cast<size_t>(group);
  Node* const node = std::exchange(of_block_[g][block], nullptr);
  SC_CHECK(node != nullptr && node->blocks_[g] == block);
  node->blocks_[g] = kNoBlock;
  --node->n_blocks_;
  EraseIfUnused(node);
}

void PrefixTree::EraseIfUnused(Node* node) {
  while (node->n_users_ == 0 && node->n_blocks_ == 0) {
    Node* const parent = node->parent_;
    if (parent == nullptr) {
      roots_.erase(node->salt_);
      return;
    }
    children_.erase(Key{parent, node->tokens_});
    --parent->n_users_;
    node = parent;
  }
}

}  // namespace stagecoach::router
