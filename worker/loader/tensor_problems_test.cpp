#include "worker/loader/tensor_problems.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

TEST_CASE("the same problem in many layers takes one line") {
  TensorProblems problems;
  CHECK(problems.empty());
  for (const int layer : {0, 1, 2, 5}) {
    problems.Add("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight", "missing");
  }
  problems.Add("model.layers.3.mlp.up_proj.weight", "has shape [1]");
  problems.Add("lm_head.weight", "missing");
  CHECK(problems.Describe(10) ==
        "model.layers.{0-2, 5}.mlp.up_proj.weight (4): missing; "
        "model.layers.3.mlp.up_proj.weight: has shape [1]; lm_head.weight: missing");
  CHECK(problems.Describe(1) ==
        "model.layers.{0-2, 5}.mlp.up_proj.weight (4): missing; and 2 more");
}

TEST_CASE("experts of many layers take one line") {
  TensorProblems problems;
  for (const char* tensor : {"h.0.experts.0.w1", "h.0.experts.1.w1", "h.10.experts.0.w1",
                             "h.2.experts.0.w1", "h.1.experts.1.w1"}) {
    problems.Add(tensor, "missing");
  }
  problems.Add("odd.{}.7", "missing");
  problems.Add("odd.8.{}", "missing");
  CHECK(problems.Lines() == std::vector<std::string>{"h.{0-2, 10}.experts.{0-1}.w1 (5): missing",
                                                     "odd.{7-8}.{} (2): missing"});
}

}  // namespace
}  // namespace stagecoach::worker
