// What a process leaves to its successor on the same GPU: memory, notes about it, tuning.
#include <catch2/generators/catch_generators.hpp>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "kernels/cuda/device/l2_sides.h"
#include "kernels/cuda/testing/attention_checks.h"

namespace stagecoach::kernels {
namespace {

TEST_CASE("Kept memory: another Ops maps it with its contents") {
  constexpr size_t kBytes = (size_t{5} << 20) + 100;
  std::vector<unsigned char> written(kBytes);
  std::iota(written.begin(), written.end(), static_cast<unsigned char>(0));
  UniqueFd fd;
  {
    const auto first = NewCudaOps();
    absl::StatusOr<SharedBuffer> made = first->AllocateShared(kBytes);
    REQUIRE(made.ok());
    CHECK(made->buffer.bytes == kBytes);
    first->Upload(written.data(), made->buffer.data.get(), kBytes);
    REQUIRE(first->Synchronize().ok());
    fd = std::move(made->fd);
  }
  const auto second = NewCudaOps();
  const absl::StatusOr<Buffer> mapped = second->MapShared(fd.get(), kBytes);
  REQUIRE(mapped.ok());
  std::vector<unsigned char> read(kBytes);
  second->Download(mapped->data.get(), read.data(), kBytes);
  REQUIRE(second->Synchronize().ok());
  CHECK(read == written);
  CHECK_FALSE(second->MapShared(-1, kBytes).ok());
}

// New shared memory for keys and values, and what another process needs to map it.
struct KeptCache {
  AttentionCache cache;
  UniqueFd k, v;
  std::string k_notes, v_notes;
};

KeptCache NewKeptCache(Ops& ops, const AttentionConfig& config, int32_t n_blocks) {
  const size_t bytes = AttentionCacheBytes(config, n_blocks);
  SharedBuffer k = *ops.AllocateShared(bytes), v = *ops.AllocateShared(bytes);
  const std::string k_notes = *ops.AdoptKv(k.buffer, ""), v_notes = *ops.AdoptKv(v.buffer, "");
  return {{k.buffer, v.buffer}, std::move(k.fd), std::move(v.fd), k_notes, v_notes};
}

AttentionCache MapCache(Ops& ops, const KeptCache& kept, size_t bytes) {
  const AttentionCache cache{*ops.MapShared(kept.k.get(), bytes),
                             *ops.MapShared(kept.v.get(), bytes)};
  // The notes, and not a new measurement, say where rows are.
  CHECK(*ops.AdoptKv(cache.k, kept.k_notes) == kept.k_notes);
  CHECK(*ops.AdoptKv(cache.v, kept.v_notes) == kept.v_notes);
  return cache;
}

// knows_sides: whether it measures the L2 partitions. A measurement may fail on a busy GPU.
std::unique_ptr<Ops> NewOps(bool knows_sides) {
  constexpr const char* kSwitch = "STAGECOACH_L2_SIDES";
  setenv(kSwitch, knows_sides ? "on" : "off", /*overwrite=*/1);
  const absl::Cleanup restore = [] { unsetenv(kSwitch); };
  return NewCudaOps();
}

// The rows of the cache are where the predecessor's L2 partitions say, whatever the successor has
// measured.
TEST_CASE("Kept memory: attention goes on with the keys and values of a predecessor") {
  constexpr int32_t kTokens = 150, kBefore = 140, kBlocks = kTokens / 16 + 2;
  const bool first_knows = GENERATE(true, false), second_knows = GENERATE(true, false);
  CAPTURE(first_knows, second_knows);
  const AttentionConfig config{.n_heads = 8, .n_kv_heads = 4, .head_dim = 64};
  REQUIRE(cuda::ChunkRowsLog2(config.dtype, config.n_kv_heads, config.head_dim) >= 0);
  const std::vector<float> qkv = RandomQkv(config, kTokens, 7, 1.0f);
  const auto reference = MakeReferenceOps();
  AttentionLayer theirs(*reference, config, kTokens, kBlocks);
  const std::vector<float> expected = theirs.InChunks(qkv, kTokens);

  const auto first = NewOps(first_knows);
  const KeptCache kept = NewKeptCache(*first, config, kBlocks);
  AttentionLayer before(*first, config, kTokens, kBlocks, kept.cache);
  before.Step({{0, 0, kBefore, qkv.data()}});

  const auto second = NewOps(second_knows);
  AttentionLayer after(*second, config, kTokens, kBlocks,
                       MapCache(*second, kept, AttentionCacheBytes(config, kBlocks)));
  const auto n_out = static_cast<size_t>(config.out_width());
  for (int32_t p = kBefore; p < kTokens; ++p) {
    const std::vector<float> row = after.Step({{0, p, 1, qkv.data() + p * config.qkv_width()}});
    const auto* const of_row = expected.data() + static_cast<size_t>(p) * n_out;
    CHECK(WorstError(row, std::vector<float>(of_row, of_row + n_out), 0.3) <
          2 * Step(config.dtype));
  }
}

TEST_CASE("Kept memory: notes about another cache are refused") {
  const auto ops = NewCudaOps();
  const SharedBuffer memory = *ops->AllocateShared(cuda::kPageBytes);
  CHECK(absl::IsInvalidArgument(ops->AdoptKv(memory.buffer, "short").status()));
  CHECK(ops->AdoptKv(memory.buffer, "").ok());
}

TEST_CASE("Kept tuning: a successor chooses as its predecessor did") {
  const auto first = NewCudaOps(), second = NewCudaOps();
  const Matrix w = PackedMatrix(*first, 128, 256, DType::kBF16, RandomFloats(128 * 256, 3));
  const Values x(*first, std::vector<float>(64 * 256, 0.25f), DType::kBF16);
  const Values y(*first, std::vector<float>(64 * 128, 0.0f), DType::kBF16);
  REQUIRE(first->Rehearse(true).ok());
  for (const int32_t n_rows : {1, 24, 64}) {
    first->Gemm({.x = x, .w = &w, .bias = nullptr, .y = y, .n_rows = n_rows, .add_to_y = false});
  }
  REQUIRE(first->Rehearse(false).ok());
  REQUIRE(first->Synchronize().ok());
  const std::string tuning = first->Tuning();
  REQUIRE(second->UseTuning(tuning).ok());
  CHECK(second->Tuning() == tuning);
#ifndef STAGECOACH_EMULATED_CUDA  // it tunes nothing
  CHECK(absl::IsInvalidArgument(second->UseTuning(tuning.substr(1))));
  CHECK(absl::IsInvalidArgument(second->UseTuning("")));
  CHECK(second->Tuning() == tuning);
#endif
}

}  // namespace
}  // namespace stagecoach::kernels
