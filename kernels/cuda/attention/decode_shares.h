// How a step's decode attention is shared out to the blocks of its kernel; made on the host.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {

// The blocks of one launch, which a recording fixes.
struct DecodeShape {
  int32_t n_blocks = 0;
  int32_t n_warps = 4;  // of a block
  // 2: the heads of each side of L2 (HeadOfSide) are shared out by themselves, to half of the
  // blocks each.
  int32_t n_sides = 1;
  int32_t chunk_rows_log2 = 0;

  // Whose shares come first.
  __host__ __device__ int32_t n_first_side() const { return (n_blocks + n_sides - 1) / n_sides; }
};
// With few query tiles blocks are large: as many warps as possible then meet in shared memory.
inline constexpr int32_t kManyTilesWarps = 4;
// Of those, as registers allow, of a multiprocessor.
constexpr int32_t ManyTilesBlocks(int32_t head_dim) { return head_dim <= 128 ? 3 : 2; }
constexpr int32_t FewTilesWarps(int32_t head_dim) { return head_dim <= 128 ? 12 : 8; }
// Whether there are multiprocessors enough for a block a tile.
inline bool HasFewTiles(const Stream& stream, int32_t max_decodes, int32_t n_passes) {
  return int64_t{max_decodes} * n_passes <= stream.n_multiprocessors;
}
// For no more than max_decodes sequences, each with n_passes tiles of query heads.
DecodeShape DecodeShapeFor(const Stream& stream, int32_t max_decodes, int32_t n_passes,
                           int32_t head_dim);
// The most that there are in any shape, however many multiprocessors are left to others.
int32_t MaxDecodeBlocks(const Stream& stream);

// One block's share; passes are counted among those of its side's heads. A segment is one tile of
// query heads of one sequence with all KV blocks that it sees; a sequence's segments (its passes)
// follow one another. A share is consecutive KV blocks of consecutive segments.
struct alignas(16) DecodeShare {
  int32_t first_decode, first_pass;
  int32_t first_block;  // of the first segment's, from 0
  int32_t n_kv_blocks;  // 0: nothing to do
  int32_t n_segments;
  // The blocks of the launch that share the first segment: the first of them, and how many.
  int32_t first_owner, first_parts;
  int32_t last_parts;  // so many share the last segment
};

// Fills `shares` ([n_blocks]). starts: [n_decodes + 1], the KV blocks that the sequences before
// see. Where there are blocks enough, segments are cut into as many parts as it takes, so that few
// are merged; else everything is cut evenly.
void ShareDecodes(std::span<const int32_t> starts, int32_t n_passes, const DecodeShape& shape,
                  std::span<DecodeShare> shares);

}  // namespace stagecoach::kernels::cuda
