#include "worker/loader/tensor_problems.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

TEST_CASE("the same problem in many layers is one line") {
  TensorProblems problems;
  CHECK(problems.empty());
  for (const int layer : {0, 1, 2, 5}) {
    problems.Add("model.layers." + std::to_string(layer) + ".mlp.up_proj.weight", "missing");
  }
  problems.Add("model.layers.3.mlp.up_proj.weight", "has shape [1]");
  problems.Add("lm_head.weight", "missing");
  CHECK(problems.Describe(10) ==
        "model.layers.{0-2, 5}.mlp.up_proj.weight: missing; "
        "model.layers.3.mlp.up_proj.weight: has shape [1]; lm_head.weight: missing");
  CHECK(problems.Describe(1) == "model.layers.{0-2, 5}.mlp.up_proj.weight: missing; and 2 more");
}

}  // namespace
}  // namespace stagecoach::worker
