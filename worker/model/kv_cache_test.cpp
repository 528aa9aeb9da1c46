#include "worker/model/kv_cache.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>

#include "kernels/reference/reference_ops.h"

namespace stagecoach::worker {
namespace {

TEST_CASE("the KV cache of all layers has the size of its blocks") {
  const ModelSpec spec{.n_kv_heads = 2,
                       .head_dim = 8,
                       .kv_groups = {{0}, {16}},
                       .layers = {{}, {.kv_group = 1}, {}}};
  constexpr uint64_t kLayerBlock = 2 * 16 * 8 * 2;  // bytes of its keys
  KvCache cache(spec, 0, 3, DType::kBF16);
  const auto ops = kernels::MakeReferenceOps();
  const std::vector<uint64_t> n_blocks = {1000, 600};
  REQUIRE(cache.Allocate(n_blocks, {}, ops.get()).ok());
  std::vector<std::pair<uintptr_t, uint64_t>> parts;  // start, bytes
  uint64_t bytes = 0;
  for (int32_t i = 0; i < 3; ++i) {
    const uint64_t n = n_blocks[static_cast<size_t>(spec.layers[i].kv_group)] * kLayerBlock;
    const kernels::KvLayer layer = cache.layer(i);
    for (const void* const start : {layer.k, layer.v}) {
      parts.emplace_back(reinterpret_cast<uintptr_t>(start), n);
    }
    bytes += 2 * n;
  }
  std::sort(parts.begin(), parts.end());
  for (size_t i = 1; i < parts.size(); ++i) {
    CHECK(parts[i - 1].first + parts[i - 1].second == parts[i].first);
  }
  CHECK(bytes == n_blocks[0] * cache.block_bytes()[0] + n_blocks[1] * cache.block_bytes()[1]);
}

TEST_CASE("KV groups differ in heads, and a layer can use another layer's keys and values") {
  const ModelSpec spec{
      .n_kv_heads = 2,
      .head_dim = 8,
      .kv_groups = {{.n_kv_heads = 1, .head_dim = 32}, {.window = 16}},
      .layers = {{}, {}, {.kv_group = 1}, {.kv_source = 1}, {.kv_group = 1, .kv_source = 2}}};
  KvCache cache(spec, /*first_layer=*/1, /*n_layers=*/4, DType::kBF16);
  constexpr uint64_t kFull = 2 * 16 * 32 * 2, kWindowed = 2 * 2 * 16 * 8 * 2;
  CHECK(cache.block_bytes() == std::vector<uint64_t>{kFull, kWindowed});
  const std::vector<KvPart> parts = cache.parts();
  REQUIRE(parts.size() == 2);
  CHECK((parts[0].layer == 1 && parts[0].bytes == kFull));
  CHECK((parts[1].layer == 2 && parts[1].bytes == kWindowed));
  const auto ops = kernels::MakeReferenceOps();
  REQUIRE(cache.Allocate(std::vector<uint64_t>{10, 20}, {}, ops.get()).ok());
  CHECK(cache.layer(2).k == cache.layer(0).k);
  CHECK(cache.layer(3).v == cache.layer(1).v);
  CHECK(cache.layer(1).k != cache.layer(0).k);
}

TEST_CASE("an FP8 cache has a byte per number, and a scale of two bytes per row") {
  const ModelSpec spec{.n_kv_heads = 2, .head_dim = 8, .kv_groups = {{0}}, .layers = {{}, {}}};
  const KvCache cache(spec, 0, 2, DType::kFp8);
  constexpr uint64_t kLayer = 2 * 2 * 16 * (8 + 2);
  CHECK(cache.block_bytes() == std::vector<uint64_t>{2 * kLayer});
  CHECK(cache.parts().at(1).bytes == kLayer);
}

TEST_CASE("of latents, the KV cache keeps one vector per token and layer, and nothing else") {
  const ModelSpec spec{
      .n_heads = 16,
      .n_kv_heads = 1,
      .head_dim = 576,
      .latent = LatentSpec{.kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128},
      .kv_groups = {{}},
      .layers = {{}, {}}};
  KvCache cache(spec, 0, 2, DType::kBF16);
  constexpr uint64_t kBlock = 16 * 576 * 2;
  CHECK(cache.block_bytes() == std::vector<uint64_t>{2 * kBlock});
  CHECK(cache.parts().at(1).bytes == kBlock);
  const auto ops = kernels::MakeReferenceOps();
  REQUIRE(cache.Allocate(std::vector<uint64_t>{10}, {}, ops.get()).ok());
  CHECK(cache.layer(0).v == nullptr);
  const auto start = [&](int32_t i) { return static_cast<unsigned char*>(cache.layer(i).k); };
  CHECK(start(1) - start(0) == 10 * kBlock);
}

}  // namespace
}  // namespace stagecoach::worker
