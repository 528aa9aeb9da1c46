#include "router/sizing/layer_split.h"

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

ModelSpec Spec(int32_t n_layers, int32_t vocab_size) {
  ModelSpec spec;
  spec.hidden_size = 100;
  spec.n_heads = 10;
  spec.n_kv_heads = 10;
  spec.head_dim = 10;
  spec.intermediate_size = 200;
  spec.vocab_size = vocab_size;  // 1000: logits weigh as much as one layer, and half of that counts
  spec.kv_groups = {{}};
  spec.layers.resize(n_layers);
  return spec;
}

std::vector<int32_t> Counts(const ModelSpec& spec, int32_t n_stages) {
  const auto ranges = BalanceLayers(spec, n_stages);
  REQUIRE(ranges.ok());
  std::vector<int32_t> counts;
  int32_t next = 0;
  for (const LayerRange& range : *ranges) {
    CHECK(range.first == next);
    CHECK(range.count >= 1);
    next += range.count;
    counts.push_back(range.count);
  }
  CHECK(next == spec.n_layers());
  return counts;
}

TEST_CASE("layers of equal cost are divided evenly") {
  CHECK(Counts(Spec(8, 1), 1) == std::vector<int32_t>{8});
  CHECK(Counts(Spec(8, 1), 2) == std::vector<int32_t>{4, 4});
  CHECK(Counts(Spec(8, 1), 8) == std::vector<int32_t>(8, 1));
  // The last stage also has the logits.
  CHECK(Counts(Spec(9, 1), 2) == std::vector<int32_t>{5, 4});
  CHECK(Counts(Spec(10, 1), 4) == std::vector<int32_t>{2, 3, 3, 2});
}

TEST_CASE("the last stage has fewer layers if logits are expensive") {
  CHECK(Counts(Spec(8, 4000), 2) == std::vector<int32_t>{5, 3});
  CHECK(Counts(Spec(8, 100'000), 2) == std::vector<int32_t>{7, 1});
}

TEST_CASE("experts count in the layers that have them") {
  ModelSpec spec = Spec(8, 1);
  spec.experts = {.n_experts = 10, .n_used = 2, .intermediate_size = 200};
  for (int32_t i : {0, 1}) spec.layers[i].has_experts = true;  // 640'000 weights against 100'000
  CHECK(Counts(spec, 2) == std::vector<int32_t>{1, 7});
  for (LayerSpec& layer : spec.layers) layer.has_experts = true;
  CHECK(Counts(spec, 2) == std::vector<int32_t>{4, 4});
}

TEST_CASE("more stages than layers are refused") {
  CHECK(absl::IsInvalidArgument(BalanceLayers(Spec(3, 1), 4).status()));
}

TEST_CASE("layers that share keys and values stay on one stage") {
  ModelSpec spec = Spec(8, 1);
  for (const int32_t layer : {4, 6, 7}) spec.layers[layer].kv_source = 3;
  CHECK(Counts(spec, 2) == std::vector<int32_t>{3, 5});
  CHECK(Counts(spec, 4) == std::vector<int32_t>{1, 1, 1, 5});
  CHECK(BalanceLayers(spec, 5).status().message() ==
        "5 stages for a model of 8 layers, of which 5 share keys and values and so must be on one "
        "stage: use at most 4 stages");
  CHECK(*SplitLayers(std::vector<uint32_t>{1, 7}, spec, 2) ==
        std::vector<LayerRange>{{0, 1}, {1, 7}});
  CHECK(
      SplitLayers(std::vector<uint32_t>{4, 4}, spec, 2).status().message() ==
      "--layer-split 4,4: a stage cannot begin with layer 4, because layers 3 to 7 share keys and "
      "values and so must be on one stage");
}

TEST_CASE("a user's split is used as it is, or refused") {
  const ModelSpec spec = Spec(8, 1);
  const auto split = [&](std::vector<uint32_t> layers) { return SplitLayers(layers, spec, 2); };
  CHECK(*split({3, 5}) == std::vector<LayerRange>{{0, 3}, {3, 5}});
  CHECK(split({8}).status().message() == "--layer-split 8 names 1 stages, but there are 2");
  CHECK(split({3, 4}).status().message() ==
        "--layer-split 3,4 sums to 7, but the model has 8 layers");
  CHECK(absl::IsInvalidArgument(split({0, 8}).status()));
  CHECK(absl::IsInvalidArgument(split({4294967295u, 9}).status()));
}

}  // namespace
}  // namespace stagecoach::router
