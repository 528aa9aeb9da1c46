// Collects problems of tensors. The same problem in many layers or experts becomes one line.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagecoach::worker {

class TensorProblems {
 public:
  void Add(std::string_view tensor, std::string_view text);
  bool empty() const { return groups_.empty(); }
  // Returns "model.layers.{0-3, 7}.mlp.up_proj.weight (5): missing", "lm_head.weight: ...", and so
  // on.
  std::vector<std::string> Lines() const;
  // Joins at most `max_groups` of these lines with "; ".
  std::string Describe(size_t max_groups = 20) const;

 private:
  struct Group {
    std::string tensor;  // with "{}" in place of each number
    std::string text;
    size_t n_tensors = 0;
    std::vector<std::set<int32_t>> numbers;  // by place in the name: layers, experts
  };
  std::vector<Group> groups_;  // in order of first appearance
  std::map<std::pair<std::string, std::string>, size_t> index_;
};

}  // namespace stagecoach::worker
