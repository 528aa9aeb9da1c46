// What kernels want as scratch, and where in it things are: arithmetic without CUDA, so that a plan
// for GPUs that are not here counts the same.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/dtype.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

inline constexpr int32_t kMaxSkinnyRows = 16;

// Rows of several matrices at once (mixture of experts).
struct RowGroup {
  int32_t matrix;     // of GroupedGemmArgs::weights
  int32_t first_row;  // of the rows in order
  int32_t n_rows;     // at most kMaxSkinnyRows
};

// ExpertMlp's. P: pairs of a row and one of its experts.
struct ExpertScratch {
  ExpertScratch(const ExpertShape& shape, DType dtype) {
    const int64_t pairs = int64_t{shape.max_tokens} * shape.n_used;
    max_groups =
        (pairs + kMaxSkinnyRows - 1) / kMaxSkinnyRows + std::min<int64_t>(shape.n_experts, pairs);
    const auto take = [this](int64_t n, size_t element_bytes) {
      const size_t start = bytes;
      bytes += (static_cast<size_t>(n) * element_bytes + 255) / 256 * 256;
      return start;
    };
    n_groups = take(1, sizeof(int32_t));
    groups = take(max_groups, sizeof(RowGroup));
    order = take(pairs, sizeof(int32_t));
    up = take(pairs * 2 * shape.width, DTypeBytes(dtype));
    activation = take(pairs * shape.width, DTypeBytes(dtype));
    y = take(pairs * shape.hidden, sizeof(float));
  }
  template <typename T>
  static T* At(void* scratch, size_t start) {
    return reinterpret_cast<T*>(static_cast<unsigned char*>(scratch) + start);
  }

  size_t bytes = 0;
  int64_t max_groups;
  size_t n_groups, groups;  // [1] int32, [max_groups] RowGroup
  size_t order;             // [P] int32: pairs by expert
  size_t up, activation;    // [P, 2 * width], [P, width], in that order
  size_t y;                 // [P, hidden] float32, by pair
};

// Gathered sequences begin at multiples of so many keys, and there are zeros after the last key: a
// kernel may read whole tiles. No value is to come from elsewhere, as 0 times NaN is NaN.
inline constexpr int32_t kGatheredTile = 128;
// Keys that there is to be room for to gather, if no sequence can have more: enough for most.
inline constexpr int64_t kMostGathered = 65536;

// Of a key and its value, of a type of 16 bits.
inline int64_t BytesOfGatheredKey(int32_t n_kv_heads, int32_t head_dim) {
  return int64_t{2} * 2 * n_kv_heads * head_dim;
}
inline size_t GatheredBytes(int64_t n_keys, int32_t n_kv_heads, int32_t head_dim) {
  return static_cast<size_t>((n_keys + kGatheredTile - 1) / kGatheredTile * kGatheredTile *
                             BytesOfGatheredKey(n_kv_heads, head_dim));
}

}  // namespace stagecoach::kernels::cuda
