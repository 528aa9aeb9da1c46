#include "router/sizing/measured_split.h"

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::router {
namespace {

// Layers of 100,000 weights, without windows; an output head that costs nothing.
ModelSpec Spec(int32_t n_layers) {
  ModelSpec spec;
  spec.hidden_size = spec.embed_size = 100;
  spec.n_heads = spec.n_kv_heads = 10;
  spec.head_dim = 10;
  spec.intermediate_size = 200;
  spec.vocab_size = 1;
  spec.kv_groups = {{.window = 0}};
  spec.layers.resize(n_layers);
  return spec;
}

// A device whose layers take 1 ms, with room for 100 layers or a KV cache of that size.
LayerOnDevice Device(double times_slower = 1, double layers_of_memory = 100) {
  return {.one_row_s = 1e-3 * times_slower,
          .many_rows_s = 2e-3 * times_slower,
          .many_rows = 101,
          .weights_bytes = 200'000,
          .kv_bytes_a_token = 10,
          .memory_bytes = static_cast<uint64_t>(200'000 * layers_of_memory)};
}

constexpr SplitDemand kFew = {.measured_layer = 0, .max_sequences = 4, .sequence_tokens = 100};

std::vector<int32_t> Counts(const MeasuredSplit& split) {
  std::vector<int32_t> counts;
  for (const LayerRange& range : split.layers) counts.push_back(range.count);
  return counts;
}

TEST_CASE("Equal devices get equally many layers") {
  for (const size_t n : {1u, 2u, 3u, 5u, 6u, 7u}) {
    const std::vector<LayerOnDevice> devices(n, Device());
    const auto split = SplitByMeasure(Spec(42), devices, kFew);
    REQUIRE(split.layers.size() == n);
    const auto counts = Counts(split);
    CHECK(*std::ranges::max_element(counts) - *std::ranges::min_element(counts) <= 1);
  }
}

TEST_CASE("A device that is slower gets fewer layers") {
  const std::vector<LayerOnDevice> devices = {Device(), Device(3), Device()};
  const auto split = SplitByMeasure(Spec(28), devices, kFew);
  CHECK(Counts(split) == std::vector<int32_t>{12, 4, 12});
  CHECK(split.n_sequences == 4);
  CHECK(split.step_s == Catch::Approx(12e-3 * 1.01).epsilon(1e-3));  // rows of two sequences
}

TEST_CASE("A device without memory for its share gets fewer layers") {
  const std::vector<LayerOnDevice> devices = {Device(), Device(1, 5.5)};
  const auto split = SplitByMeasure(Spec(20), devices, kFew);
  CHECK(Counts(split) == std::vector<int32_t>{15, 5});
}

TEST_CASE("The KV cache is not bound by the smallest device") {
  // 10 layers each: beside them, the small device has room for 39 sequences.
  const std::vector<LayerOnDevice> devices = {Device(1, 30), Device(1, 12)};
  const SplitDemand many = {.measured_layer = 0, .max_sequences = 200, .sequence_tokens = 100};
  const auto even = JudgeSplit(Spec(20), devices, many, {{0, 10}, {10, 10}});
  CHECK(even.n_sequences == 39);
  const auto split = SplitByMeasure(Spec(20), devices, many);
  CHECK(split.n_sequences > 2 * even.n_sequences);
  CHECK(split.rows_per_s() > 1.3 * even.rows_per_s());
  // With enough memory, or for few sequences, the even split is the fastest.
  CHECK(Counts(SplitByMeasure(Spec(20), devices, kFew)) == std::vector<int32_t>{10, 10});
}

TEST_CASE("A KV cache of a given size has no weights beside it") {
  std::vector<LayerOnDevice> devices = {Device(), Device()};
  for (LayerOnDevice& device : devices) {
    device.kv_is_fixed = true;
    device.memory_bytes = 10 * 100 * 10 * 2;  // two sequences in ten layers
  }
  const auto split = SplitByMeasure(Spec(20), devices, kFew);
  CHECK(Counts(split) == std::vector<int32_t>{10, 10});
  CHECK(split.n_sequences == 2);
}

TEST_CASE("Windows bound a sequence's part of the KV cache") {
  ModelSpec spec = Spec(4);
  spec.kv_groups = {{.window = 0}, {.window = 10}};
  for (const int32_t i : {0, 1}) spec.layers[i].kv_group = 1;
  std::vector<LayerOnDevice> devices(2, Device());
  for (LayerOnDevice& device : devices) {
    device.kv_is_fixed = true;
    device.memory_bytes = 3 * 2 * 10 * 10;  // three sequences in two layers with a window
  }
  CHECK(JudgeSplit(spec, devices, kFew, {{0, 2}, {2, 2}}).n_sequences == 0);
  CHECK(JudgeSplit(spec, {devices.data(), 1}, kFew, {{0, 2}}).n_sequences == 3);
}

TEST_CASE("A model that fits nowhere has no split") {
  const std::vector<LayerOnDevice> devices = {Device(1, 5), Device(1, 5)};
  CHECK(SplitByMeasure(Spec(20), devices, kFew).layers.empty());
}

}  // namespace
}  // namespace stagecoach::router
