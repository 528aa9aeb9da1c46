// Causal attention over the paged KV cache. Tiles of rows process the keys in steps of 64 and in
// splits of 256 (attention_plan.h).
//
// A row's result depends only on its own position. Steps and splits are ranges of absolute
// positions. A row processes a block of 16 keys only if it sees one of them, and never reads values
// after its own position. So neither the other rows of a tile nor the old contents of a block can
// influence it.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "common/check.h"
#include "common/float_convert.h"
#include "common/status.h"
#include "kernels/cpu/attention_plan.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/kv_fp8-inl.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/cpu/softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

inline constexpr size_t kStepBlocks = 4;
inline constexpr size_t kStepTokens = kStepBlocks * kBlock;
inline constexpr size_t kMaxValueDim = 512;

// State of the rows of a tile. Each array starts at a multiple of 64 bytes.
struct TileState {
  float *max, *sum, *values;  // [n_rows], [n_rows, 16], [n_rows, padded_dim]

  static size_t Floats(size_t n_rows, size_t padded_dim) {
    return (n_rows + 15) / 16 * 16 + n_rows * (kBlock + padded_dim);
  }
  static TileState At(float* memory, size_t n_rows) {
    float* const sum = memory + (n_rows + 15) / 16 * 16;
    return {memory, sum, sum + n_rows * kBlock};
  }
  RowState Row(size_t row, size_t padded_dim) const {
    return {max + row, sum + row * kBlock, values + row * padded_dim};
  }
  void Clear(size_t n_rows, size_t padded_dim) const {
    std::fill_n(max, n_rows, kMinusInfinity);
    std::fill_n(sum, n_rows * kBlock, 0.0f);
    std::fill_n(values, n_rows * padded_dim, 0.0f);
  }
};

// Processes one tile. Tokens are counted from the tile's first one; a token has `group` rows, one
// per query head.
template <DType kType>
class TileRun {
  // The type of the panels that are multiplied.
  static constexpr DType kMulType = kType == DType::kFp8 ? DType::kF32 : kType;

 public:
  TileRun(const AttentionArgs& args, const AttentionTile& tile, float* memory)
      : args_(args),
        tile_(tile),
        group_(static_cast<size_t>(args.n_heads / args.n_kv_heads)),
        head_dim_(static_cast<size_t>(args.head_dim)),
        value_dim_(ValueDim(args)),
        padded_dim_(Padded(value_dim_)),
        n_rows_(static_cast<size_t>(tile.n_tokens) * group_),
        table_(args.step->groups[static_cast<size_t>(args.group)].block_tables +
               static_cast<size_t>(args.step->seq_slots[tile.seq]) *
                   static_cast<size_t>(args.step->block_table_stride)) {
    queries_ = memory;
    scores_ = queries_ + n_rows_ * Padded(head_dim_);
    wide_ = scores_ + n_rows_ * kStepTokens;
    state_memory_ = wide_ + WideFloats(args);
  }

  static size_t PartialFloats(const AttentionArgs& args, size_t n_rows) {
    return TileState::Floats(n_rows, Padded(ValueDim(args)));
  }
  static size_t ScratchFloats(const AttentionArgs& args, size_t n_rows) {
    return n_rows * (Padded(static_cast<size_t>(args.head_dim)) + kStepTokens) + WideFloats(args) +
           2 * PartialFloats(args, n_rows);
  }

  void RunWhole() {
    LoadQueries();
    const size_t floats = TileState::Floats(n_rows_, padded_dim_);
    const TileState total = TileState::At(state_memory_, n_rows_);
    const TileState part = TileState::At(state_memory_ + floats, n_rows_);
    total.Clear(n_rows_, padded_dim_);
    for (int32_t s = 0; s < tile_.n_splits; ++s) {
      Split(tile_.first_split + s, part);
      Merge(tile_.first_split + s, part, total);
    }
    Finish(total);
  }

  void RunSplit(int32_t split, float* partial) {
    LoadQueries();
    Split(split, TileState::At(partial, n_rows_));
  }

  // partials: the results of all splits of the tile, partial_floats apart.
  void RunMerge(float* partials, size_t partial_floats) {
    const TileState total = TileState::At(state_memory_, n_rows_);
    total.Clear(n_rows_, padded_dim_);
    for (int32_t s = 0; s < tile_.n_splits; ++s) {
      float* const partial = partials + static_cast<size_t>(s) * partial_floats;
      Merge(tile_.first_split + s, TileState::At(partial, n_rows_), total);
    }
    Finish(total);
  }

 private:
  static bool HasLatents(const AttentionArgs& args) { return args.kv_of_row == KvOfRow::kLatents; }
  static size_t ValueDim(const AttentionArgs& args) {
    return static_cast<size_t>(HasLatents(args) ? args.value_dim : args.head_dim);
  }
  static size_t WideFloats(const AttentionArgs& args) {
    if (HasLatents(args)) return kBlock * ValueDim(args);
    return kType == DType::kFp8 ? kStepTokens * static_cast<size_t>(args.head_dim) : 0;
  }
  static size_t Padded(size_t dim) { return (dim + 15) / 16 * 16; }

  int32_t Position(size_t token) const {
    return tile_.first_position + static_cast<int32_t>(token);
  }

  struct Tokens {
    size_t begin, end;
  };
  // The tokens that see any of the keys [first, last].
  Tokens Seeing(int32_t first, int32_t last) const {
    const auto token = [this](int64_t position) {
      return static_cast<size_t>(
          std::clamp<int64_t>(position - tile_.first_position, 0, tile_.n_tokens));
    };
    return {token(first), std::max(token(first), token(args_.window.EndOf(last)))};
  }

  void LoadQueries() {
    const int32_t n_kv_vectors = NKvVectors(args_.kv_of_row) * args_.n_kv_heads;
    const size_t stride = static_cast<size_t>(args_.n_heads + n_kv_vectors) * head_dim_;
    for (size_t token = 0; token < static_cast<size_t>(tile_.n_tokens); ++token) {
      const float* const q = args_.qkv.f32() +
                             (static_cast<size_t>(tile_.first_row) + token) * stride +
                             static_cast<size_t>(tile_.kv_head) * group_ * head_dim_;
      float* const to = queries_ + token * group_ * head_dim_;
      for (size_t i = 0; i < group_ * head_dim_; ++i) to[i] = q[i] * args_.scale;
    }
  }

  size_t KvStart(int32_t first_key) const {
    const int32_t block = table_[first_key / kBlockTokens];
    SC_CHECK(block >= 0);
    return KvHeadStart(kType, static_cast<size_t>(block), static_cast<size_t>(tile_.kv_head),
                       static_cast<size_t>(args_.n_kv_heads), head_dim_);
  }

  void Split(int32_t split, const TileState& state) {
    state.Clear(n_rows_, padded_dim_);
    for (int32_t first = split * kSplitTokens; first < (split + 1) * kSplitTokens;
         first += static_cast<int32_t>(kStepTokens)) {
      const Tokens tokens = Seeing(first, first + static_cast<int32_t>(kStepTokens) - 1);
      if (tokens.begin < tokens.end) Step(first, tokens, state);
    }
  }

  // Processes the keys [first_key, first_key + 64) for `tokens`, each of which sees one of them.
  void Step(int32_t first_key, Tokens tokens, const TileState& state) {
    const int32_t oldest = args_.window.First(Position(tokens.begin));
    const int32_t latest = Position(tokens.end - 1);
    const int32_t end_key = first_key + static_cast<int32_t>(kStepTokens);
    const size_t begin = static_cast<size_t>(std::max(0, oldest - first_key)) / kBlock;
    const size_t end = static_cast<size_t>(std::min(latest, end_key - 1) - first_key) / kBlock + 1;

    const uint8_t* keys[kStepBlocks];
    size_t starts[kStepBlocks];
    for (size_t b = begin; b < end; ++b) {
      starts[b] = KvStart(first_key + static_cast<int32_t>(b * kBlock));
      keys[b] = static_cast<const uint8_t*>(args_.kv.k) + starts[b];
      if constexpr (kType == DType::kFp8) {
        float* const wide = wide_ + b * kBlock * head_dim_;
        WidenFp8Keys(keys[b], static_cast<const uint8_t*>(args_.kv.v) + starts[b], head_dim_, wide);
        keys[b] = reinterpret_cast<const uint8_t*>(wide);
      }
    }
    const size_t row = tokens.begin * group_;
    MulPanels<kMulType>((tokens.end - tokens.begin) * group_, queries_ + row * head_dim_, head_dim_,
                        keys + begin, end - begin, head_dim_,
                        scores_ + row * kStepTokens + begin * kBlock, kStepTokens, false);
    for (size_t token = tokens.begin; token < tokens.end; ++token) {
      const int32_t position = Position(token);
      const size_t first =
          static_cast<size_t>(std::max(0, args_.window.First(position) - first_key));
      const size_t last = static_cast<size_t>(std::min(position, end_key - 1) - first_key);
      for (size_t r = token * group_; r < (token + 1) * group_; ++r) {
        SoftmaxStep(scores_ + r * kStepTokens, first / kBlock * kBlock,
                    (last / kBlock + 1) * kBlock, first, last, args_.softcap,
                    state.Row(r, padded_dim_), padded_dim_);
      }
    }
    for (size_t b = begin; b < end; ++b) {
      AddValues(first_key + static_cast<int32_t>(b * kBlock), starts[b], b * kBlock, state);
    }
  }

  // Adds the values of the block that starts at first_key. column: index of that key's weights.
  void AddValues(int32_t first_key, size_t start, size_t column, const TileState& state) {
    const int32_t last_key = first_key + static_cast<int32_t>(kBlock) - 1;
    const Tokens seeing = Seeing(first_key, last_key);
    if (seeing.begin == seeing.end) return;
    const bool is_wide = HasLatents(args_) || kType == DType::kFp8;
    if (is_wide) WidenValues(first_key, start);
    const auto mul = [&](size_t first, size_t n_tokens, size_t n_keys) {
      if (is_wide) {
        MulValues<DType::kF32>(first, n_tokens, reinterpret_cast<const uint8_t*>(wide_), column,
                               n_keys, state);
      } else {
        MulValues<kMulType>(first, n_tokens, static_cast<const uint8_t*>(args_.kv.v) + start,
                            column, n_keys, state);
      }
    };
    // Tokens from the block's last key on use the whole block. Earlier tokens use it up to their
    // own position.
    size_t token = seeing.begin;
    for (; token < seeing.end && Position(token) < last_key; ++token) {
      const size_t n_keys = static_cast<size_t>(Position(token) - first_key) + 1;
      mul(token, 1, n_keys);
    }
    if (token < seeing.end) mul(token, seeing.end - token, kBlock);
  }

  // Makes panels of the values of a block, in float32.
  void WidenValues(int32_t first_key, size_t start) {
    if constexpr (kType == DType::kFp8) {
      // The keys that the next step reads at this place.
      const int32_t ahead = first_key + static_cast<int32_t>(kStepTokens);
      const bool is_last = ahead >= tile_.first_position + tile_.n_tokens;
      const uint8_t* const next =
          static_cast<const uint8_t*>(args_.kv.k) + (is_last ? start : KvStart(ahead));
      WidenFp8Values(static_cast<const uint8_t*>(args_.kv.v) + start, next, head_dim_, wide_);
    } else {
      WidenLatents(static_cast<const uint8_t*>(args_.kv.k) + start);
    }
  }

  // Latents lie in the order of keys.
  void WidenLatents(const uint8_t* latents) {
    const PanelTag d;
    for (size_t i = 0; i < value_dim_; i += 4) {
      float* const to = wide_ + i / kPanelRows * kPanelRows * kBlock + i % kPanelRows;
      for (size_t v = 0; v < kPanelVecs; ++v) {
        float by_token[4 * kPanelLanes];
        hn::StoreInterleaved4(LoadWeights<kType, false>(latents, i, v),
                              LoadWeights<kType, true>(latents, i + 1, v),
                              LoadWeights<kType, false>(latents, i + 2, v),
                              LoadWeights<kType, true>(latents, i + 3, v), d, by_token);
        for (size_t lane = 0; lane < kPanelLanes; ++lane) {
          std::memcpy(to + (v * kPanelLanes + lane) * kPanelRows, by_token + 4 * lane,
                      4 * sizeof(float));
        }
      }
    }
  }

  // block: the panels of a block's values
  template <DType kValueType>
  void MulValues(size_t token, size_t n_tokens, const uint8_t* block, size_t column, size_t n_keys,
                 const TileState& state) {
    const size_t row = token * group_;
    const float* const weights = scores_ + row * kStepTokens + column;
    constexpr size_t kPanelStride = kPanelRows * kBlock * DTypeBytes(kValueType);
    const uint8_t* panels[kMaxValueDim / kPanelRows];
    const size_t n_panels = value_dim_ / kPanelRows;
    for (size_t p = 0; p < n_panels; ++p) panels[p] = block + p * kPanelStride;
    float* const values = state.values + row * padded_dim_;
    MulPanels<kValueType>(n_tokens * group_, weights, kStepTokens, panels, n_panels, n_keys, values,
                          padded_dim_, true);
    const size_t rest = value_dim_ % kPanelRows;
    if (rest == 0) return;
    // The last panel is narrow, so it is widened to float32.
    HWY_ALIGN float wide[kPanelRows * kBlock] = {};
    for (size_t key = 0; key < n_keys; ++key) {
      for (size_t i = 0; i < rest; ++i) {
        wide[PanelIndex(DType::kF32, i, key)] = LoadElement(
            block + n_panels * kPanelStride, kValueType, PanelIndex(kValueType, i, key, rest));
      }
    }
    const uint8_t* const wide_panel = reinterpret_cast<const uint8_t*>(wide);
    MulPanels<DType::kF32>(n_tokens * group_, weights, kStepTokens, &wide_panel, 1, n_keys,
                           values + n_panels * kPanelRows, padded_dim_, true);
  }

  void Merge(int32_t split, const TileState& part, const TileState& total) const {
    const Tokens tokens = Seeing(split * kSplitTokens, (split + 1) * kSplitTokens - 1);
    for (size_t row = tokens.begin * group_; row < tokens.end * group_; ++row) {
      MergeRow(total.Row(row, padded_dim_), part.Row(row, padded_dim_), padded_dim_);
    }
  }

  void Finish(const TileState& total) const {
    for (size_t row = 0; row < n_rows_; ++row) {
      const size_t token = static_cast<size_t>(tile_.first_row) + row / group_;
      const size_t head = static_cast<size_t>(tile_.kv_head) * group_ + row % group_;
      const RowState state = total.Row(row, padded_dim_);
      if (args_.sinks != nullptr) AddSink(args_.sinks[head], state, padded_dim_);
      FinishRow(state, value_dim_,
                args_.out.f32() + (token * static_cast<size_t>(args_.n_heads) + head) * value_dim_);
    }
  }

  const AttentionArgs& args_;
  const AttentionTile& tile_;
  const size_t group_, head_dim_, value_dim_;
  const size_t padded_dim_;  // of values
  const size_t n_rows_;
  const int32_t* const table_;
  float* queries_;  // [n_rows, head_dim], scaled
  float* scores_;   // [n_rows, 64]: scores, then weights
  float* wide_;     // with latents [value_dim / 16, kBlock, 16]; with kFp8 a step's keys, then a
                    // block's values
  float* state_memory_;
};

template <DType kType>
absl::Status AttentionOf(const AttentionArgs& args, CpuContext& context) {
  AttentionPlan& plan = *context.attention_plan;
  const int n_threads = context.pool->n_threads();
  PlanAttention(args, n_threads, &plan);
  const size_t max_rows = static_cast<size_t>(plan.tile_tokens * (args.n_heads / args.n_kv_heads));
  const size_t per_thread = (TileRun<kType>::ScratchFloats(args, max_rows) + 15) / 16 * 16;
  const size_t per_partial = TileRun<kType>::PartialFloats(args, max_rows);
  SC_ASSIGN_OR_RETURN(float* const scratch,
                      context.scratch->Floats(static_cast<size_t>(n_threads) * per_thread +
                                              plan.tile_of_split.size() * per_partial));
  const auto of_thread = [&](int thread) {
    return scratch + static_cast<size_t>(thread) * per_thread;
  };
  if (!plan.by_split) {
    context.pool->Run(plan.tiles.size(), [&](size_t i, int thread) {
      TileRun<kType>(args, plan.tiles[i], of_thread(thread)).RunWhole();
    });
    return absl::OkStatus();
  }
  float* const partials = scratch + static_cast<size_t>(n_threads) * per_thread;
  context.pool->Run(plan.tile_of_split.size(), [&](size_t i, int thread) {
    const AttentionTile& tile = plan.tiles[static_cast<size_t>(plan.tile_of_split[i])];
    const int32_t split = tile.first_split + static_cast<int32_t>(i - tile.first_partial);
    TileRun<kType>(args, tile, of_thread(thread)).RunSplit(split, partials + i * per_partial);
  });
  context.pool->Run(plan.tiles.size(), [&](size_t i, int thread) {
    TileRun<kType>(args, plan.tiles[i], of_thread(thread))
        .RunMerge(partials + plan.tiles[i].first_partial * per_partial, per_partial);
  });
  return absl::OkStatus();
}

absl::Status Attention(const AttentionArgs& args, CpuContext& context) {
  if (args.kv_of_row == KvOfRow::kLatents) {
    SC_CHECK(args.value_dim % kLatentMultiple == 0 && args.value_dim <= args.head_dim);
    SC_CHECK(static_cast<size_t>(args.value_dim) <= kMaxValueDim && args.n_kv_heads == 1);
  } else {
    SC_CHECK(static_cast<size_t>(args.head_dim) <= kMaxValueDim);
  }
  switch (args.kv.dtype) {
    case DType::kF32:
      return AttentionOf<DType::kF32>(args, context);
    case DType::kBF16:
      return AttentionOf<DType::kBF16>(args, context);
    case DType::kF16:
      return AttentionOf<DType::kF16>(args, context);
    case DType::kFp8:
      SC_CHECK(args.kv_of_row != KvOfRow::kLatents);
      return AttentionOf<DType::kFp8>(args, context);
  }
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Attention);

CpuKernel<AttentionArgs> ChooseAttention() { return &HWY_DYNAMIC_DISPATCH(Attention); }

}  // namespace stagecoach::kernels
#endif
