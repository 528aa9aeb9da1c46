#include "kernels/cuda/attention/decode_shares.h"

#include <algorithm>
#include <cstddef>

#include "common/check.h"

namespace stagecoach::kernels::cuda {
namespace {

// Minimum KV blocks per CTA: less work does not justify a merge through global memory.
constexpr int64_t LeastBlocks(int32_t n_warps) {
  return (n_warps == kManyTilesWarps ? 4 : 3) * n_warps;
}

// Positions of the cuts, from 0 to the total: every segment is cut into parts of at most `longest`.
std::vector<int64_t> CutSegments(std::span<const int32_t> starts, int32_t n_passes,
                                 int64_t longest) {
  std::vector<int64_t> cuts = {0};
  for (size_t d = 0; d + 1 < starts.size(); ++d) {
    const int64_t length = starts[d + 1] - starts[d], n_parts = CeilDiv(length, longest);
    for (int32_t pass = 0; pass < n_passes; ++pass) {
      const int64_t begin = cuts.back();
      for (int64_t i = 1; i <= n_parts; ++i) cuts.push_back(begin + i * length / n_parts);
    }
  }
  return cuts;
}

std::vector<int64_t> CutEvenly(int64_t n, int64_t n_parts) {
  std::vector<int64_t> cuts;
  for (int64_t i = 0; i <= n_parts; ++i) cuts.push_back(i * n / n_parts);
  return cuts;
}

std::vector<int64_t> Cuts(std::span<const int32_t> starts, int32_t n_passes,
                          const DecodeShape& shape) {
  const auto n_decodes = static_cast<int64_t>(starts.size()) - 1;
  const int64_t n = int64_t{starts.back()} * n_passes;
  const int64_t least = LeastBlocks(shape.n_warps), even = CeilDiv(n, shape.n_blocks);
  const auto n_parts = [&](int64_t longest) {
    int64_t of_pass = 0;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      of_pass += CeilDiv(starts[d + 1] - starts[d], longest);
    }
    return of_pass * n_passes;
  };
  // A CTA with 25% more work than the others delays the kernel as much as merges would.
  const int64_t most = std::max(least, even + even / 4);
  if (n_decodes * n_passes <= shape.n_blocks) {
    for (int64_t longest = std::max(least, even); longest <= most; longest += longest / 16 + 1) {
      if (n_parts(longest) <= shape.n_blocks) return CutSegments(starts, n_passes, longest);
    }
    if (n_parts(most) <= shape.n_blocks) return CutSegments(starts, n_passes, most);
  }
  return CutEvenly(n, std::min<int64_t>(shape.n_blocks, CeilDiv(n, least)));
}

}  // namespace

DecodeShape DecodeShapeFor(const Stream& stream, int32_t max_decodes, int32_t n_passes,
                           int32_t head_dim, bool is_fp8) {
  if (HasFewTiles(stream, max_decodes, n_passes)) {
    return {.n_blocks = stream.n_multiprocessors, .n_warps = FewTilesWarps(head_dim, is_fp8)};
  }
  // The number of CTAs that fit on the GPU at once.
  return {.n_blocks = stream.n_multiprocessors * ManyTilesBlocks(head_dim, is_fp8),
          .n_warps = kManyTilesWarps};
}

int32_t MaxDecodeBlocks(const Stream& stream) { return stream.n_all_multiprocessors * 4; }

void ShareDecodes(std::span<const int32_t> starts, int32_t n_passes, const DecodeShape& shape,
                  std::span<DecodeShare> shares) {
  SC_CHECK(static_cast<int32_t>(shares.size()) == shape.n_blocks);
  if (shape.n_sides > 1) {
    const int32_t n_first = shape.n_first_side();
    const auto share_side = [&](int32_t first, int32_t n) {
      const auto of_side = shares.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
      ShareDecodes(starts, n_passes / 2, {.n_blocks = n, .n_warps = shape.n_warps}, of_side);
      for (DecodeShare& share : of_side) share.first_owner += first;
    };
    share_side(0, n_first);
    share_side(n_first, shape.n_blocks - n_first);
    return;
  }
  std::fill(shares.begin(), shares.end(), DecodeShare{});
  if (starts.size() < 2) return;
  const std::vector<int64_t> cuts = Cuts(starts, n_passes, shape);
  const size_t n_used = cuts.size() - 1;
  // The current segment of the walk: its sequence and pass, its range of blocks, the share in which
  // it begins, and the number of shares that have a part of it.
  int32_t decode = 0, pass = 0, owner = 0, n_parts = 0;
  int64_t begin = 0, end = starts[1];
  const auto count_parts = [&](size_t first) {
    owner = static_cast<int32_t>(first);
    n_parts = 1;
    for (size_t i = first + 1; i < n_used && cuts[i] < end; ++i) ++n_parts;
  };
  count_parts(0);
  for (size_t i = 0; i < n_used; ++i) {
    const auto next_segment = [&] {
      if (++pass == n_passes) {
        pass = 0;
        ++decode;
      }
      begin = end;
      end += starts[static_cast<size_t>(decode) + 1] - starts[static_cast<size_t>(decode)];
      count_parts(i);
    };
    if (cuts[i] == end) next_segment();
    DecodeShare& share = shares[i];
    share = {.first_decode = decode,
             .first_pass = pass,
             .first_block = static_cast<int32_t>(cuts[i] - begin),
             .n_kv_blocks = static_cast<int32_t>(cuts[i + 1] - cuts[i]),
             .n_segments = 1,
             .first_owner = owner,
             .first_parts = n_parts};
    while (end < cuts[i + 1]) {
      next_segment();
      ++share.n_segments;
    }
    share.last_parts = n_parts;
  }
}

}  // namespace stagecoach::kernels::cuda
