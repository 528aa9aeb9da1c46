#include "kernels/cuda/attention/gather_keys.h"

#include <cstring>

#include "kernels/cuda/step/step_builder.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/testing/kv_copy_checks.h"

namespace stagecoach::kernels {
namespace {

constexpr int32_t kHeads = 3, kDim = 24, kMaxBlocks = 12, kCacheBlocks = 28;
constexpr size_t kRow = kDim;

// A cache value that encodes its own place, as raw 16 bits.
uint16_t Mark(int32_t block, int32_t head, int32_t token, int32_t element, bool is_value) {
  return static_cast<uint16_t>(((block * kHeads + head) * kBlockTokens + token) * kDim * 2 +
                               element * 2 + is_value);
}

std::vector<uint16_t> Cache(bool is_value) {
  std::vector<uint16_t> cache;
  for (int32_t block = 0; block < kCacheBlocks; ++block) {
    for (int32_t head = 0; head < kHeads; ++head) {
      for (int32_t token = 0; token < kBlockTokens; ++token) {
        for (int32_t e = 0; e < kDim; ++e) {
          cache.push_back(Mark(block, head, token, e, is_value));
        }
      }
    }
  }
  return cache;
}

TEST_CASE("GatherKeys: sequences are contiguous, padded with zeros to a whole tile") {
  const auto ops = NewCudaOps();
  const auto upload = [&](const auto& values) {
    Buffer buffer = *ops->Allocate(values.size() * sizeof(values[0]));
    ops->Upload(values.data(), buffer.data.get(), values.size() * sizeof(values[0]));
    return buffer;
  };
  const Buffer k = upload(Cache(false)), v = upload(Cache(true));
  // Slot 1 has 150 keys and slot 0 has 7; slot 2 is not in this step.
  constexpr int32_t kKeys[] = {150, 7}, kSlots[] = {1, 0};
  std::vector<int32_t> tables(3 * kMaxBlocks);
  for (size_t i = 0; i < tables.size(); ++i)
    tables[i] = static_cast<int32_t>(i * 7 + 3) % kCacheBlocks;
  const Buffer block_tables = upload(tables);
  const Buffer starts = upload(std::vector<int32_t>{0, 16, 24});
  const Buffer entries = upload(std::vector<int32_t>{1 * kMaxBlocks, 0});
  const Buffer n_keys = upload(std::vector<int32_t>{150, 7});
  StepInputs step;
  step.groups.push_back({.block_tables = block_tables.As<int32_t>()});

  const size_t bytes = cuda::GatheredBytes(500, kHeads, kDim);
  const int64_t capacity = cuda::GatheredCapacity(bytes, kHeads, kDim);
  REQUIRE(capacity == 512);
  const Buffer scratch = upload(std::vector<unsigned char>(bytes, 0xff));
  const cuda::GatheredKeys to = cuda::GatheredIn(scratch.data.get(), bytes, kHeads, kDim);
  const NativeQueue queue = ops->native_queue();
  const cuda::Stream stream{.handle = static_cast<cudaStream_t>(queue.stream)};
  REQUIRE(cuda::GatherKeys(stream,
                           {.kv = {k.data.get(), v.data.get(), DType::kBF16},
                            .step = &step,
                            .group = 0,
                            .n_kv_heads = kHeads,
                            .head_dim = kDim},
                           {.block_starts = starts.As<int32_t>(),
                            .first_entries = entries.As<int32_t>(),
                            .n_keys = n_keys.As<int32_t>(),
                            .n_seqs = 2,
                            .n_blocks = 24},
                           {.first = 0, .n = kHeads}, to, cuda::KvSides{}) == cudaSuccess);
  std::vector<uint16_t> found(bytes / sizeof(uint16_t));
  ops->Download(scratch.data.get(), found.data(), bytes);
  REQUIRE(ops->Synchronize().ok());

  std::vector<uint16_t> expected(found.size(), 0xffff);
  constexpr int32_t kFirst[] = {0, 256}, kEnd[] = {256, 384};
  for (const bool is_value : {false, true}) {
    for (int32_t head = 0; head < kHeads; ++head) {
      uint16_t* const of_head =
          expected.data() + (static_cast<size_t>(is_value * kHeads + head)) * 512 * kRow;
      for (size_t s = 0; s < 2; ++s) {
        for (int32_t key = 0; key < kEnd[s] - kFirst[s]; ++key) {
          const int32_t entry = kSlots[s] * kMaxBlocks + key / kBlockTokens;
          for (int32_t e = 0; e < kDim; ++e) {
            of_head[static_cast<size_t>(kFirst[s] + key) * kRow + static_cast<size_t>(e)] =
                key >= kKeys[s] ? uint16_t{0}
                                : Mark(tables[static_cast<size_t>(entry)], head, key % kBlockTokens,
                                       e, is_value);
          }
        }
      }
    }
  }
  CHECK(found == expected);
}

TEST_CASE("GatherKeys: the numbers of an FP8 cache") {
  constexpr int32_t kKeys = 41, kBlocks = 3, kTile = 128;
  const AttentionConfig config{.n_kv_heads = kHeads, .head_dim = kDim, .fp8_cache = true};
  const auto ops = NewCudaOps();
  AttentionCache cache = NewAttentionCache(*ops, config, kBlocks);
  const KvLayer kv{cache.k.data.get(), cache.v.data.get(), DType::kFp8};
  const std::vector<float> qkv =
      RandomFloats(static_cast<size_t>(kBlocks * kBlockTokens * config.qkv_width()), 3);
  const KvBytes bytes = ExpectedKv(config, qkv, kBlocks);
  KvHost host(*ops, config, bytes, kBlocks);
  const std::vector<uint32_t> blocks = {1, 2, 0};
  ops->ImportKv(host.Args(kv, blocks));

  const auto upload = [&](const std::vector<int32_t>& values) { return Ids(*ops, values); };
  const Ids tables = upload({1, 2, 0}), starts = upload({0, kTile / kBlockTokens});
  const Ids entries = upload({0}), n_keys = upload({kKeys});
  StepInputs step;
  step.groups.push_back({.block_tables = tables.data()});
  const size_t n_bytes = cuda::GatheredBytes(kTile, kHeads, kDim);
  const Buffer scratch = *ops->Allocate(n_bytes);
  const cuda::GatheredKeys to = cuda::GatheredIn(scratch.data.get(), n_bytes, kHeads, kDim);
  const cuda::Stream stream{.handle = static_cast<cudaStream_t>(ops->native_queue().stream)};
  REQUIRE(cuda::GatherKeys(stream,
                           {.qkv = {nullptr, DType::kBF16},
                            .kv = kv,
                            .step = &step,
                            .group = 0,
                            .n_kv_heads = kHeads,
                            .head_dim = kDim},
                           {.block_starts = starts.data(),
                            .first_entries = entries.data(),
                            .n_keys = n_keys.data(),
                            .n_seqs = 1,
                            .n_blocks = kTile / kBlockTokens},
                           {.first = 0, .n = kHeads}, to, cuda::KvSides{}) == cudaSuccess);
  std::vector<uint16_t> found(n_bytes / sizeof(uint16_t));
  ops->Download(scratch.data.get(), found.data(), n_bytes);
  REQUIRE(ops->Synchronize().ok());

  const size_t head_bytes = KvFp8HeadBytes(kDim);
  std::vector<uint16_t> expected(found.size(), 0);
  std::vector<float> row(kRow);
  for (int32_t head = 0; head < 2 * kHeads; ++head) {
    for (int32_t key = 0; key < kKeys; ++key) {
      const auto of_block = static_cast<size_t>(key / kBlockTokens * 2 * kHeads + head);
      LoadKvFp8Row(bytes.data() + of_block * head_bytes, static_cast<size_t>(key % kBlockTokens),
                   row);
      for (size_t e = 0; e < kRow; ++e) {
        expected[static_cast<size_t>(head * to.capacity + key) * kRow + e] = BF16FromFloat(row[e]);
      }
    }
  }
  CHECK(found == expected);
}

}  // namespace
}  // namespace stagecoach::kernels
