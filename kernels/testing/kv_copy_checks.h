// Shared by the tests of ExportKv and ImportKv on all devices.
#pragma once

#include <catch2/generators/catch_generators.hpp>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "kernels/kv_fp8_row.h"
#include "kernels/testing/attention_layer.h"

namespace stagecoach::kernels {

// What a device's copies are checked with: each test case runs with every combination.
inline AttentionConfig GenerateKvCopyConfig() {
  const DType cache = GENERATE(DType::kF32, DType::kBF16, DType::kF16, DType::kFp8);
  const bool is_fp8 = cache == DType::kFp8;
  return {.n_heads = 4,
          .n_kv_heads = GENERATE(1, 4),
          .head_dim = GENERATE(64, 80, 128, 10),
          .dtype = is_fp8 ? DType::kBF16 : cache,
          .fp8_cache = is_fp8};
}

using KvBytes = std::vector<unsigned char>;

// Host memory of a copy that may still be under way. The places lie apart, and the last one comes
// first.
class KvHost {
 public:
  KvHost(Ops& ops, const AttentionConfig& config, size_t n_blocks)
      : ops_(ops),
        config_(config),
        n_blocks_(n_blocks),
        block_bytes_(KvBlockBytes(config.kv_dtype(), config.n_kv_heads, config.head_dim)),
        memory_(*ops.AllocateHost(n_blocks * place_bytes())) {}
  KvHost(Ops& ops, const AttentionConfig& config, const KvBytes& contents, size_t n_blocks)
      : KvHost(ops, config, n_blocks) {
    REQUIRE(contents.size() == n_blocks * block_bytes_);
    for (size_t i = 0; i < n_blocks; ++i) {
      std::memcpy(At(i), contents.data() + i * block_bytes_, block_bytes_);
    }
  }

  // Valid until the next call.
  KvCopyArgs Args(const KvLayer& kv, std::span<const uint32_t> blocks) {
    copies_.clear();
    for (size_t i = 0; i < blocks.size(); ++i) copies_.push_back({blocks[i], PlaceOf(i)});
    return {.kv = kv,
            .n_kv_heads = config_.n_kv_heads,
            .head_dim = config_.head_dim,
            .copies = copies_,
            .host = memory_.As<unsigned char>() + kBefore,
            .place_bytes = place_bytes()};
  }
  KvBytes Get() const {
    REQUIRE(ops_.Wait(ops_.Mark()).ok());
    KvBytes bytes;
    for (size_t i = 0; i < n_blocks_; ++i) bytes.insert(bytes.end(), At(i), At(i) + block_bytes_);
    return bytes;
  }

 private:
  static constexpr size_t kBefore = 32, kBehind = 16;  // bytes of a place that are not this layer's
  size_t place_bytes() const { return kBefore + block_bytes_ + kBehind; }
  uint32_t PlaceOf(size_t i) const { return static_cast<uint32_t>(n_blocks_ - 1 - i); }
  unsigned char* At(size_t i) const {
    return memory_.As<unsigned char>() + PlaceOf(i) * place_bytes() + kBefore;
  }

  Ops& ops_;
  const AttentionConfig& config_;
  const size_t n_blocks_;
  const size_t block_bytes_;
  const Buffer memory_;
  std::vector<KvBlockCopy> copies_;
};

inline KvBytes Exported(Ops& ops, const AttentionConfig& config, const KvLayer& kv,
                        std::span<const uint32_t> blocks) {
  KvHost host(ops, config, blocks.size());
  ops.ExportKv(host.Args(kv, blocks));
  return host.Get();
}

inline KvBytes RandomKvBytes(const AttentionConfig& config, size_t n_blocks, uint32_t seed) {
  std::mt19937 random(seed);
  KvBytes bytes(n_blocks * KvBlockBytes(config.kv_dtype(), config.n_kv_heads, config.head_dim));
  for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random());
  return bytes;
}

// What KvCopyArgs::host holds after a sequence, whose RopeAppend neither norms nor rotates.
// qkv: [n_blocks * kBlockTokens, qkv_width]
inline KvBytes ExpectedKv(const AttentionConfig& config, const std::vector<float>& qkv,
                          int32_t n_blocks) {
  const int32_t n_heads = 2 * config.n_kv_heads;  // of the keys, then of the values
  const auto head_dim = static_cast<size_t>(config.head_dim);
  const size_t head_bytes = KvBlockBytes(config.kv_dtype(), 1, config.head_dim, 1);
  KvBytes bytes(static_cast<size_t>(n_blocks) * static_cast<size_t>(n_heads) * head_bytes);
  unsigned char* to = bytes.data();
  for (int32_t block = 0; block < n_blocks; ++block) {
    for (int32_t head = 0; head < n_heads; ++head, to += head_bytes) {
      for (int32_t token = 0; token < kBlockTokens; ++token) {
        const float* const row = qkv.data() + (block * kBlockTokens + token) * config.qkv_width() +
                                 (config.n_heads + head) * config.head_dim;
        const auto t = static_cast<size_t>(token);
        if (config.fp8_cache) {
          StoreKvFp8Row({row, head_dim}, t, to);
          continue;
        }
        for (size_t i = 0; i < head_dim; ++i) {
          StoreElement(to, config.dtype, t * head_dim + i, row[i]);
        }
      }
    }
  }
  return bytes;
}

// A sequence goes on in other blocks of another layer, with attention as before, up to `tolerance`.
// copies: the Ops of the other layer; may be `ops`.
inline void CheckCopiedSequence(Ops& ops, Ops& copies, const AttentionConfig& config,
                                double tolerance) {
  constexpr int32_t kFull = 3, kBefore = kFull * kBlockTokens, kTokens = kBefore + 6;
  constexpr int32_t kElsewhere = 5, kBlocks = 11;
  const int32_t width = config.qkv_width();
  const std::vector<float> qkv =
      Rounded(RandomFloats(static_cast<size_t>(kTokens * width), 5), config.dtype);
  AttentionLayer layer(ops, config, kTokens, kBlocks), copy(copies, config, kTokens, kBlocks);
  layer.Step({{0, 0, kBefore, qkv.data()}});
  const KvBytes bytes = Exported(ops, config, layer.kv(), layer.Blocks(0, kFull));
  CHECK(bytes == ExpectedKv(config, qkv, kFull));

  const std::vector<uint32_t> blocks = copy.Blocks(kElsewhere, kFull);
  KvHost host(copies, config, bytes, blocks.size());
  copies.ImportKv(host.Args(copy.kv(), blocks));
  for (int32_t p = kBefore, n = 4; p < kTokens; p += n, n = 1) {
    const float* const rows = qkv.data() + p * width;
    CHECK(WorstError(copy.Step({{kElsewhere, p, n, rows}}), layer.Step({{0, p, n, rows}}), 0.3) <=
          tolerance);
  }
  CHECK(Exported(copies, config, copy.kv(), blocks) == bytes);
}

// Any bytes go to blocks and back, other blocks keep theirs, and calls run in order.
inline void CheckCopiedBytes(Ops& ops, const AttentionConfig& config) {
  constexpr uint32_t kBlocks = 6;
  const AttentionCache cache = NewAttentionCache(ops, config, kBlocks);
  const KvLayer kv{cache.k.data.get(), cache.v.data.get(), config.kv_dtype()};
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5}, some = {4, 0, 3};
  const KvBytes old_bytes = RandomKvBytes(config, all.size(), 1);
  const KvBytes new_bytes = RandomKvBytes(config, some.size(), 2);
  KvHost first(ops, config, old_bytes, all.size()), before(ops, config, all.size());
  KvHost second(ops, config, new_bytes, some.size()), after(ops, config, all.size());
  ops.ImportKv(first.Args(kv, all));
  ops.ExportKv(before.Args(kv, all));
  ops.ImportKv(second.Args(kv, some));
  ops.ImportKv(second.Args(kv, {}));
  ops.ExportKv(after.Args(kv, all));
  ops.ExportKv(before.Args(kv, {}));

  KvBytes expected = old_bytes;
  const auto block_bytes = static_cast<std::ptrdiff_t>(old_bytes.size() / all.size());
  for (size_t i = 0; i < some.size(); ++i) {
    const auto from = new_bytes.begin() + static_cast<std::ptrdiff_t>(i) * block_bytes;
    std::copy(from, from + block_bytes, expected.begin() + some[i] * block_bytes);
  }
  CHECK(after.Get() == expected);
  CHECK(before.Get() == old_bytes);
}

}  // namespace stagecoach::kernels
