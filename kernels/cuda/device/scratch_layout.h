// Layout of the scratch memory of kernels. Plain arithmetic without CUDA, so that planning for GPUs
// on other machines gets the same sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

inline constexpr int32_t kMaxSkinnyRows = 16;

// A group of rows that one matrix of a list multiplies (mixture of experts).
struct RowGroup {
  int32_t matrix;     // index into GroupedGemmArgs::weights
  int32_t first_row;  // index into the sorted rows
  int32_t n_rows;     // <= kMaxSkinnyRows
};

// A tile of the sorted rows that one matrix multiplies. Tiles of one matrix that come one after the
// other make a run, so that a kernel can compute them together. A run's tiles have the same number
// of rows, but the last one may have fewer.
struct alignas(16) RowTile {
  int32_t matrix;
  int32_t first_row, n_rows;  // of the run, in the sorted rows
  int32_t first_tile;         // of the run
};
inline constexpr int32_t kMaxRunTiles = 16;

// Scratch of ExpertMlp. P: number of (row, expert) pairs.
struct ExpertScratch {
  ExpertScratch(const ExpertShape& shape, DType dtype) {
    const int64_t pairs = int64_t{shape.max_tokens} * shape.n_used;
    // Tiles have kMaxSkinnyRows rows or more.
    max_groups =
        (pairs + kMaxSkinnyRows - 1) / kMaxSkinnyRows + std::min<int64_t>(shape.n_experts, pairs);
    const auto take = [this](int64_t n, size_t element_bytes) {
      const size_t start = bytes;
      bytes += (static_cast<size_t>(n) * element_bytes + 255) / 256 * 256;
      return start;
    };
    n_groups = take(1, sizeof(int32_t));
    groups = take(max_groups, std::max(sizeof(RowGroup), sizeof(RowTile)));
    n_selected = take(1, sizeof(int32_t));
    selected = take(max_groups, std::max(sizeof(RowGroup), sizeof(RowTile)));
    order = take(pairs, sizeof(int32_t));
    places = take(pairs, sizeof(int32_t));
    up = take(pairs * 2 * shape.width, DTypeBytes(dtype));
    activation = take(pairs * shape.width, DTypeBytes(dtype));
    y = take(pairs * shape.hidden, sizeof(float));
    sorted_x = y + static_cast<size_t>(pairs * shape.hidden) * sizeof(uint16_t);
  }
  template <typename T>
  static T* At(void* scratch, size_t start) {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(scratch) + start);
  }

  size_t bytes = 0;
  int64_t max_groups;
  // Byte offset of [1] int32; of [max_groups] RowGroup or RowTile.
  size_t n_groups, groups;
  size_t n_selected, selected;  // groups of some experts
  size_t order;                 // [P] int32: pairs sorted by expert
  size_t places;                // [P] int32: each pair's index in `order`
  size_t up, activation;        // [P, 2 * width], [P, width], sorted by expert
  size_t y;         // [P, hidden]: float32 in pair order, or 16-bit and sorted by expert
  size_t sorted_x;  // [P, hidden] 16-bit, sorted by expert; in the second half of y
};

// Every gathered sequence begins at a multiple of this many keys, and zeros follow its last key, so
// that a kernel may read whole tiles. The padding must be zero, because 0 times NaN is NaN.
inline constexpr int32_t kGatheredTile = 128;
// Size of the gather buffer in keys, or less if no sequence can have as many. Enough for most
// steps.
inline constexpr int64_t kMostGathered = 65536;

// Bytes of one key and its value over all KV heads, with a 16-bit type.
inline int64_t BytesOfGatheredKey(int32_t n_kv_heads, int32_t head_dim) {
  return int64_t{2} * 2 * n_kv_heads * head_dim;
}
inline size_t GatheredBytes(int64_t n_keys, int32_t n_kv_heads, int32_t head_dim) {
  return static_cast<size_t>((n_keys + kGatheredTile - 1) / kGatheredTile * kGatheredTile *
                             BytesOfGatheredKey(n_kv_heads, head_dim));
}

}  // namespace stagecoach::kernels::cuda
