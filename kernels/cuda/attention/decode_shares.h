// Distribution of a step's decode attention over the CTAs of its kernel. Runs on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {

// The grid of one launch, which a recording (CUDA graph) fixes.
struct DecodeShape {
  int32_t n_blocks = 0;
  int32_t n_warps = 4;  // per CTA
  // 2: the heads of each L2 partition (HeadOfSide) are distributed separately, to half of the CTAs
  // each.
  int32_t n_sides = 1;
  int32_t chunk_rows_log2 = 0;

  // CTAs of the first L2 partition; their shares come first.
  __host__ __device__ int32_t n_first_side() const { return (n_blocks + n_sides - 1) / n_sides; }
};
// Warps per CTA with many query tiles. With few tiles the CTAs are larger (FewTilesWarps), so that
// as many warps as possible combine their results in shared memory.
inline constexpr int32_t kManyTilesWarps = 4;
// CTAs per SM with kManyTilesWarps, as the registers allow. FP8 keys take half as many registers,
// and need more warps to have as many bytes in flight.
constexpr int32_t ManyTilesBlocks(int32_t head_dim, bool is_fp8) {
  return head_dim > 128 ? 2 : is_fp8 ? 4 : 3;
}
constexpr int32_t FewTilesWarps(int32_t head_dim, bool is_fp8) {
  return head_dim > 128 ? 8 : is_fp8 ? 16 : 12;
}
// Whether there are enough SMs for one CTA per query tile.
inline bool HasFewTiles(const Stream& stream, int32_t max_decodes, int32_t n_passes) {
  return int64_t{max_decodes} * n_passes <= stream.n_multiprocessors;
}
// Shape for at most max_decodes sequences, each with n_passes tiles of query heads.
DecodeShape DecodeShapeFor(const Stream& stream, int32_t max_decodes, int32_t n_passes,
                           int32_t head_dim, bool is_fp8);
// The largest n_blocks of any shape, for any number of SMs left to other kernels.
int32_t MaxDecodeBlocks(const Stream& stream);

// The share of one CTA. Pass indices count within the heads of its L2 partition. A segment is one
// tile of query heads of one sequence with all KV blocks that it sees. The segments (passes) of a
// sequence are consecutive. A share is a range of consecutive KV blocks over consecutive segments.
struct alignas(16) DecodeShare {
  int32_t first_decode, first_pass;
  int32_t first_block;  // index within the first segment
  int32_t n_kv_blocks;  // 0: no work
  int32_t n_segments;
  // CTAs that share the first segment: index of the first one, and their number.
  int32_t first_owner, first_parts;
  int32_t last_parts;  // number of CTAs that share the last segment
};

// Fills `shares` ([n_blocks]). starts: [n_decodes + 1], prefix sum of the KV blocks that each
// sequence sees. If there are enough CTAs, every CTA gets a part of one segment only, so that few
// results need a merge. Otherwise the KV blocks are cut evenly, which is the decomposition of
// Stream-K: M. Osama et al., "Stream-K: Work-Centric Parallel Decomposition for Dense Matrix-Matrix
// Multiplication on the GPU", 2023.
void ShareDecodes(std::span<const int32_t> starts, int32_t n_passes, const DecodeShape& shape,
                  std::span<DecodeShare> shares);

}  // namespace stagecoach::kernels::cuda
