// Shared by the attention tests: one attention layer with its cache on a device.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/key_window.h"
#include "kernels/testing/values.h"

namespace stagecoach::kernels {

struct AttentionConfig {
  int32_t n_heads = 4, n_kv_heads = 1, head_dim = 64;
  KeyWindow window;
  float softcap = 0;
  DType dtype = DType::kBF16;  // of activations, unless the device has its own, and of the cache
  bool fp8_cache = false;      // the cache is kFp8
  bool rope_and_norm = false;
  int32_t rotary_dim = 0;       // 0: head_dim
  bool forgets_blocks = false;  // no block ids for positions before the window
  bool has_sinks = false;
  bool norms_all_heads = false;  // with rope_and_norm
  bool norms_v = false;          // with RMS norms of q and k
  QueryScaling query_scaling = {};
  // Rows hold the heads that this names; with kNone, another row has appended keys and values.
  KvOfRow kv_of_row = KvOfRow::kKeysAndValues;

  DType kv_dtype() const { return fp8_cache ? DType::kFp8 : dtype; }
  int32_t qkv_width() const { return (n_heads + 2 * n_kv_heads) * head_dim; }
  // RopeAppend and Attention get rows of this width.
  int32_t row_width() const { return (n_heads + NKvVectors(kv_of_row) * n_kv_heads) * head_dim; }
  int32_t out_width() const { return n_heads * head_dim; }
};

struct AttentionCache {
  Buffer k, v;  // adopted by the device
};

inline size_t AttentionCacheBytes(const AttentionConfig& config, int32_t n_blocks) {
  // At least 2 MiB: a GPU only measures the L2 partitions of memory that is aligned to a 2 MiB
  // page.
  return std::max(static_cast<size_t>(n_blocks) *
                      KvBlockBytes(config.kv_dtype(), config.n_kv_heads, config.head_dim, 1),
                  size_t{2} << 20);
}

// A cache that starts filled with NaN, so that a read of an unwritten row shows in the result.
inline AttentionCache NewAttentionCache(Ops& ops, const AttentionConfig& config, int32_t n_blocks) {
  const size_t bytes = AttentionCacheBytes(config, n_blocks);
  AttentionCache cache{*ops.AllocateKv(bytes), *ops.AllocateKv(bytes)};
  const std::vector<unsigned char> nan(bytes, 0xff);
  ops.Upload(nan.data(), cache.k.data.get(), bytes);
  ops.Upload(nan.data(), cache.v.data.get(), bytes);
  return cache;
}

// One attention layer on a device. Its cache assigns blocks in scattered order.
class AttentionLayer {
 public:
  static constexpr int32_t kMaxChunks = 6;

  AttentionLayer(Ops& ops, const AttentionConfig& config, int32_t max_positions, int32_t n_blocks)
      : AttentionLayer(ops, config, max_positions, n_blocks,
                       NewAttentionCache(ops, config, n_blocks)) {}
  AttentionLayer(Ops& ops, const AttentionConfig& config, int32_t max_positions, int32_t n_blocks,
                 AttentionCache cache)
      : ops_(ops),
        config_(config),
        cache_(std::move(cache)),
        block_order_(static_cast<size_t>(n_blocks)),
        q_norm_(ops, RandomFloats(NormWidth(config, config.n_heads), 11, 0.1f)),
        k_norm_(ops, RandomFloats(NormWidth(config, config.n_kv_heads), 12, 0.1f)),
        sinks_(ops, RandomFloats(config.n_heads, 13, 3.0f)),
        cos_(ops, Waves(config, max_positions, false)),
        sin_(ops, Waves(config, max_positions, true)) {
    REQUIRE(n_blocks % 7 != 0);  // else the order has some blocks several times
    for (int32_t i = 0; i < n_blocks; ++i) block_order_[i] = (i * 7 + 3) % n_blocks;
    rope_ = {cos_.f32(), sin_.f32(), RotaryDim(config)};
    StepLimits limits{.max_tokens = 2 * max_positions,
                      .max_slots = kMaxChunks,
                      .max_blocks = max_positions / 16 + 2,
                      .groups = {{config.window}},
                      .n_heads = config.n_heads,
                      .n_kv_heads = config.n_kv_heads,
                      .head_dim = config.head_dim,
                      .act_dtype = config.dtype,
                      .kv_dtype = config.kv_dtype(),
                      .has_softcap = config.softcap > 0};
    const size_t scratch_bytes = ops.AttentionScratchBytes(limits);
    if (scratch_bytes > 0) {
      // Scratch starts with garbage; its size may not hold the keys of two sequences at once.
      scratch_ = *ops.Allocate(scratch_bytes);
      const std::vector<unsigned char> garbage(scratch_bytes, 0xff);
      ops.Upload(garbage.data(), scratch_.data.get(), scratch_bytes);
      limits.attention_scratch = scratch_.data.get();
      limits.attention_scratch_bytes = scratch_bytes;
    }
    step_ = *ops.NewStepInputs(limits);
  }

  KvLayer kv() const { return {cache_.k.data.get(), cache_.v.data.get(), config_.kv_dtype()}; }
  // Ids of n blocks from `first` on, an index into block_order_.
  std::vector<uint32_t> Blocks(int32_t first, int32_t n) const {
    return {block_order_.begin() + first, block_order_.begin() + first + n};
  }

  struct Chunk {
    int32_t first_block;  // index into block_order_
    int32_t position, n_tokens;
    const float* qkv;  // [n_tokens, qkv_width]
  };

  // Appends and attends all chunks in one step. Returns [sum of n_tokens, out_width].
  std::vector<float> Step(const std::vector<Chunk>& chunks, int32_t n_padding = 0) {
    std::vector<float> qkv;
    std::vector<StepSeq> seqs;
    std::vector<NewBlock> blocks;
    int32_t n_tokens = 0;
    for (const Chunk& chunk : chunks) {
      qkv.insert(qkv.end(), chunk.qkv, chunk.qkv + chunk.n_tokens * config_.qkv_width());
      const int32_t slot = kMaxChunks - 1 - static_cast<int32_t>(seqs.size());
      seqs.push_back({slot, chunk.position, chunk.n_tokens});
      n_tokens += chunk.n_tokens;
      const int32_t oldest =
          config_.forgets_blocks ? config_.window.First(chunk.position) / kBlockTokens : 0;
      for (int32_t b = 0; b < (chunk.position + chunk.n_tokens + 15) / 16; ++b) {
        const int32_t block = block_order_[static_cast<size_t>(chunk.first_block + b)];
        blocks.push_back({0, slot, b, b >= oldest ? block : -1});
      }
    }
    ops_.BuildStep(
        {.seqs = seqs, .new_blocks = blocks, .n_tokens = n_tokens, .n_padding = n_padding},
        step_.get());
    qkv.resize(qkv.size() + static_cast<size_t>(n_padding * config_.qkv_width()), 1.0f);
    if (config_.kv_of_row == KvOfRow::kNone) {
      const Values whole(ops_, qkv, config_.dtype);
      Append(whole, n_tokens + n_padding, KvOfRow::kKeysAndValues);
    }
    const Values in(ops_, RowsOf(qkv), config_.dtype);
    Append(in, n_tokens + n_padding, config_.kv_of_row);
    const size_t n_out = static_cast<size_t>(n_tokens * config_.out_width());
    const Values out(
        ops_, std::vector<float>(n_out + static_cast<size_t>(n_padding * config_.out_width()), NAN),
        config_.dtype);
    ops_.Attention({.qkv = in,
                    .kv = kv(),
                    .step = step_.get(),
                    .group = 0,
                    .out = out,
                    .n_heads = config_.n_heads,
                    .n_kv_heads = config_.n_kv_heads,
                    .head_dim = config_.head_dim,
                    .scale = 1 / std::sqrt(static_cast<float>(config_.head_dim)),
                    .softcap = config_.softcap,
                    .window = config_.window,
                    .sinks = config_.has_sinks ? sinks_.f32() : nullptr,
                    .kv_of_row = config_.kv_of_row});
    std::vector<float> result = out.Get();
    result.resize(n_out);
    return result;
  }

  // Runs the whole sequence in chunks of `size` tokens.
  std::vector<float> InChunks(const std::vector<float>& qkv, int32_t size) {
    const int32_t n = static_cast<int32_t>(qkv.size()) / config_.qkv_width();
    std::vector<float> out;
    for (int32_t p = 0; p < n; p += size) {
      const std::vector<float> part =
          Step({{0, p, std::min(size, n - p), qkv.data() + p * config_.qkv_width()}});
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }

 private:
  void Append(Act rows, int32_t n_rows, KvOfRow kv_of_row) {
    ops_.RopeAppend({.qkv = rows,
                     .positions = step_->positions,
                     .kv_slots = step_->groups[0].kv_slots,
                     .rope = config_.rope_and_norm ? &rope_ : nullptr,
                     .q_norm = config_.rope_and_norm ? q_norm_.f32() : nullptr,
                     .k_norm = config_.rope_and_norm ? k_norm_.f32() : nullptr,
                     .norm_kind = config_.norms_v ? NormKind::kRms : NormKind::kRmsPlusOne,
                     .norm_eps = 1e-6f,
                     .kv = kv(),
                     .n_tokens = n_rows,
                     .n_heads = config_.n_heads,
                     .n_kv_heads = config_.n_kv_heads,
                     .head_dim = config_.head_dim,
                     .norms_all_heads = config_.norms_all_heads,
                     .query_scaling = config_.query_scaling,
                     .norms_v = config_.norms_v,
                     .kv_of_row = kv_of_row});
  }
  // The first row_width numbers of each row of `qkv`, which is [T, qkv_width].
  std::vector<float> RowsOf(const std::vector<float>& qkv) const {
    std::vector<float> rows;
    for (auto row = qkv.begin(); row != qkv.end(); row += config_.qkv_width()) {
      rows.insert(rows.end(), row, row + config_.row_width());
    }
    return rows;
  }
  static int32_t NormWidth(const AttentionConfig& config, int32_t n_heads) {
    return config.norms_all_heads ? n_heads * config.head_dim : config.head_dim;
  }
  static int32_t RotaryDim(const AttentionConfig& config) {
    return config.rotary_dim > 0 ? config.rotary_dim : config.head_dim;
  }
  static std::vector<float> Waves(const AttentionConfig& config, int32_t max_positions,
                                  bool is_sin) {
    const int32_t half = RotaryDim(config) / 2;
    std::vector<float> waves;
    for (int32_t p = 0; p < max_positions; ++p) {
      for (int32_t i = 0; i < half; ++i) {
        const double angle = p * std::pow(10000.0, -static_cast<double>(i) / half);
        waves.push_back(static_cast<float>(is_sin ? std::sin(angle) : std::cos(angle)));
      }
    }
    return waves;
  }

  Ops& ops_;
  const AttentionConfig config_;
  const AttentionCache cache_;
  std::unique_ptr<StepInputs> step_;
  Buffer scratch_;
  std::vector<int32_t> block_order_;
  Values q_norm_, k_norm_, sinks_, cos_, sin_;
  RopeTable rope_;
};

}  // namespace stagecoach::kernels
