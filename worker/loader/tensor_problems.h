// Collects what is wrong with tensors; the same thing in many layers becomes one line.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stagecoach::worker {

class TensorProblems {
 public:
  void Add(std::string_view tensor, std::string_view text);
  bool empty() const { return groups_.empty(); }
  // "model.layers.{0-3, 7}.mlp.up_proj.weight: missing; lm_head.weight: ..."; at most `max_groups`
  // of them.
  std::string Describe(size_t max_groups) const;

 private:
  struct Group {
    std::string tensor;  // "{}" for the layer
    std::string text;
    std::vector<int32_t> layers;
  };
  std::vector<Group> groups_;  // in order of first appearance
  std::map<std::pair<std::string, std::string>, size_t> index_;
};

}  // namespace stagecoach::worker
