// The kernel of few_rows.h. A source file for each type includes it.
#include <algorithm>

#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/gated.h"
#include "kernels/cuda/gemm/row_norm_kernel.h"
#include "kernels/cuda/packed/block_ring.h"
#include "kernels/cuda/packed/few_rows.h"
#include "kernels/cuda/packed/packed_codes.h"
#include "kernels/cuda/packed/packed_groups.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kBlocksOfMultiprocessor = 2;

struct FewRowsParams {
  FusedProduct fused;
  PackedGroups groups;
  int32_t n_stages;  // kMostRingStages or kLeastRingStages
};

// A lane's inputs of a unit: row g of each tile of 8 rows.
template <PackedForm kForm, typename T, int kRowTiles>
struct UnitInputs {
  uint4 at[2][kRowTiles];

  // x: the lane's row in each row tile, from the lane's first input on. The unit begins at input
  // `first`; has_both: with it, it has 64 inputs, else 32.
  __device__ __forceinline__ void Load(const T* const (&x)[kRowTiles], int first, bool has_both) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const T* const row = x[n] + first;
      at[0][n] = Chunk(row);
      at[1][n] = has_both ? Chunk(row + kChunkCols) : uint4{};
    }
  }
  static __device__ __forceinline__ uint4 Chunk(const T* x) {
    if constexpr (HasHalfScales(kForm)) {
      const uint2 low = *reinterpret_cast<const uint2*>(x);
      const uint2 high = *reinterpret_cast<const uint2*>(x + 16);
      return make_uint4(low.x, low.y, high.x, high.y);
    } else {
      return *reinterpret_cast<const uint4*>(x);
    }
  }
};

// Sums of a lane: outputs g and g + 8 of rows 2c and 2c + 1 of each row tile.
template <int kRowTiles>
struct Sums {
  float at[kRowTiles][4];

  // += part * scale; scale: for output g and for g + 8
  __device__ __forceinline__ void AddScaled(const Sums& part, float scale_g, float scale_g8) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) at[n][i] += (i < 2 ? scale_g : scale_g8) * part.at[n][i];
    }
  }
  // Adds the product of a chunk's first or second 16 inputs, to nothing if is_new.
  template <typename T, int kHalf>
  __device__ __forceinline__ void Multiply(const uint32_t (&a)[4], const uint4 (&x)[kRowTiles],
                                           bool is_new) {
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
      const uint32_t b0 = kHalf == 0 ? x[n].x : x[n].z, b1 = kHalf == 0 ? x[n].y : x[n].w;
      if (is_new) {
        FirstMma<T>(at[n], a, b0, b1);
      } else {
        Mma<T>(at[n], a, b0, b1);
      }
    }
  }
};

// Sums of a group's products: of the first and of the second 16 inputs of each chunk, because an
// MMA waits for the one whose sum it continues.
template <int kRowTiles>
struct GroupSums {
  Sums<kRowTiles> first, second;
};

// Adds the products of unit u of a block to `sums`. `group` has those of a group that has begun.
// is_last: no unit of the block follows.
template <typename Type, typename T, int kRowTiles>
__device__ __forceinline__ void MultiplyUnit(const UnitCodes<Type::kForm, T>& codes, int u,
                                             bool is_last,
                                             const UnitInputs<Type::kForm, T, kRowTiles>& x,
                                             BlockScales<Type, T>& scales,
                                             GroupSums<kRowTiles>& group, Sums<kRowTiles>& sums) {
  constexpr PackedForm kForm = Type::kForm;
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int chunk = 2 * u + j;
    const bool is_new = scales.Begins(chunk);
    if (is_new) scales.Enter(chunk);
    uint32_t low[4], high[4];
    codes.Pairs(j, 0, scales.minus_zero[0], low);
    codes.Pairs(j, 1, scales.minus_zero[1], high);
    const uint32_t first[4] = {low[0], high[0], low[1], high[1]};
    const uint32_t second[4] = {low[2], high[2], low[3], high[3]};
    group.first.template Multiply<T, 0>(first, x.at[j], is_new);
    group.second.template Multiply<T, 1>(second, x.at[j], is_new);
    if (scales.Ends(chunk) || (is_last && j == 1)) {
      if constexpr (HasHalfScales(kForm)) {
        sums.AddScaled(group.first, scales.scale[0][0], scales.scale[1][0]);
        sums.AddScaled(group.second, scales.scale[0][1], scales.scale[1][1]);
      } else {
        group.first.AddScaled(group.second, 1, 1);
        sums.AddScaled(group.first, scales.scale[0][0], scales.scale[1][0]);
      }
    }
    if constexpr (HasMinima(kForm)) {
      constexpr uint32_t kOne = BothHalves(kIsBF16<T> ? 0x3f80 : 0x3c00);
      const uint32_t ones[4] = {kOne, kOne, kOne, kOne};
      Sums<kRowTiles> inputs;
      inputs.template Multiply<T, 0>(ones, x.at[j], true);
      inputs.template Multiply<T, 1>(ones, x.at[j], false);
      sums.AddScaled(inputs, -scales.minimum[0], -scales.minimum[1]);
    }
  }
}

// A CTA takes tiles with a stride of the grid size, and fetches the next tile's blocks while it
// finishes one. Codes are multiplied without their scale; a group's sum is then scaled in float32.
// kGrouped: a kernel of its own, because the other one has no register left.
template <typename Type, typename T, int kRowTiles, bool kGrouped>
__global__ void __launch_bounds__(kRingWarps* kWarpThreads, kBlocksOfMultiprocessor)
    FewRowsKernel(const FewRowsParams params) {
  const FusedProduct& fused = params.fused;
  const PackedProduct& p = fused.product;
  const int n_stages = params.n_stages;
  constexpr PackedForm kForm = Type::kForm;
  constexpr int kRows = 8 * kRowTiles;
  // Two buffers if they fit: then no warp waits until a tile's results are written.
  constexpr int kPartials = kRowTiles == 1 ? 2 : 1;
  __shared__ float partials[kPartials][kRingWarps][kRows][kTileRows + 1];
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int g = lane / 4, c = lane % 4;
  const int cols = p.w.cols, header_bytes = p.w.header_bytes;
  const int n_tiles = p.w.n_tiles(), n_units = p.w.n_units, n_blocks = p.w.n_blocks();
  const int block_bytes = header_bytes + kBlockUnits * UnitBytes(kForm);
  const int first_tile = static_cast<int>(blockIdx.y);
  const TileOrder order{.n_tiles = n_tiles,
                        .stride = static_cast<int>(gridDim.y),
                        .half = fused.is_gated ? n_tiles / 2 : 0};
  const unsigned char* tiles = p.w.tiles;
  int first_row = static_cast<int>(blockIdx.x) * kRows;
  int n_rows = min(p.n_rows - first_row, kRows);
  const float* bias = nullptr;  // of the matrix of a group
  if constexpr (kGrouped) {
    WaitForPrevious();  // a kernel made the groups
    if (!params.groups.Has(static_cast<int>(blockIdx.x))) return;
    const RowGroup group = params.groups.Group(static_cast<int>(blockIdx.x));
    tiles = params.groups.TilesOf(group.matrix);
    if (params.groups.bias != nullptr) bias = params.groups.bias + int64_t{group.matrix} * p.w.rows;
    first_row = group.first_row;
    n_rows = group.n_rows;
  }

  WarpBlocks blocks(n_blocks, order, first_tile, warp);
  BlockRing<kForm> ring{
      .tiles = tiles,
      .tile_bytes = int64_t{n_units} * UnitBytes(kForm) + int64_t{n_blocks} * header_bytes,
      .n_units = n_units,
      .header_bytes = header_bytes,
      .block_bytes = block_bytes,
      .next = blocks,
      .memory = DynamicShared() + warp * n_stages * block_bytes,
      .lane = lane,
      .n_stages = n_stages};
#pragma unroll 1
  for (int stage = 0; stage < n_stages; ++stage) ring.Fetch();
  const T* x = static_cast<const T*>(p.x);
  if (fused.norm.x != nullptr) {
    T* const normed = reinterpret_cast<T*>(DynamicShared() + kRingWarps * n_stages * block_bytes);
    NormRow(fused.norm, cols, &partials[0][0][0][0], normed);
    x = normed;
  } else {
    WaitForPrevious();
  }

  // A lane without a row repeats the last one; nothing is written for it.
  const T* lane_x[kRowTiles];
#pragma unroll
  for (int n = 0; n < kRowTiles; ++n) {
    int lane_row = first_row + min(8 * n + g, n_rows - 1);
    if constexpr (kGrouped) lane_row = params.groups.RowOfX(lane_row);
    lane_x[n] = x + int64_t{lane_row} * cols + InputOf<kForm>(c, 0);
  }
  // The output of each tile that this thread writes.
  static_assert(kRows * kTileRows <= kRingWarps * kWarpThreads);
  const int row = static_cast<int>(threadIdx.x) / kTileRows;
  const int of_tile = static_cast<int>(threadIdx.x) % kTileRows;
  int y_row = first_row + row;
  if constexpr (kGrouped) y_row = row < n_rows ? params.groups.RowOfY(y_row) : 0;

  UnitInputs<kForm, T, kRowTiles> inputs[2];  // of two units in a row
  const auto has_both = [cols](int first) { return first + kChunkCols < cols; };
  if (!blocks.at_end()) {
    inputs[0].Load(lane_x, blocks.block * kBlockCols, has_both(blocks.block * kBlockCols));
  }
  float gate = 0;
  for (int tile = first_tile, buffer = 0; tile < n_tiles; tile = order.After(tile)) {
    const bool is_gate = tile < order.half;
    const int output = (tile - (is_gate ? 0 : order.half)) * kTileRows + of_tile;
    const bool writes = row < n_rows && output < p.w.rows;
    const int64_t y_at = int64_t{y_row} * p.y_stride + output;
    float* const float_y = static_cast<float*>(p.y) + y_at;
    T* const y = static_cast<T*>(p.y) + y_at;
    float before = 0;
    if (writes && p.add_to_y) before = p.y_is_float ? *float_y : ToFloat(*y);
    if (writes && p.bias != nullptr) before += p.bias[output];

    Sums<kRowTiles> sums{};
    GroupSums<kRowTiles> group;
    while (blocks.tile == tile) {
      const int first_col = blocks.block * kBlockCols;
      const int n_left = n_units - blocks.block * kBlockUnits;
      blocks.Next();
      const int next_col = (blocks.at_end() ? warp : blocks.block) * kBlockCols;
      const unsigned char* const block = ring.Wait();
      BlockScales<Type, T> scales(p.w, block, g);
      const unsigned char* const units = block + header_bytes;
      UnitCodes<kForm, T> codes[2];  // of two units in a row
      codes[0].Load(units, lane);
      if (n_left >= kBlockUnits) {
        const T* here[kRowTiles];
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) here[n] = lane_x[n] + first_col;
#pragma unroll
        for (int u = 0; u < kBlockUnits; ++u) {
          const bool is_last = u + 1 == kBlockUnits;
          if (is_last) {
            inputs[0].Load(lane_x, next_col, has_both(next_col));
          } else {
            codes[(u + 1) % 2].Load(units + (u + 1) * UnitBytes(kForm), lane);
            inputs[(u + 1) % 2].Load(here, (u + 1) * kUnitCols, true);
          }
          MultiplyUnit<Type, T, kRowTiles>(codes[u % 2], u, is_last, inputs[u % 2], scales, group,
                                           sums);
        }
      } else {
#pragma unroll
        for (int u = 0; u < kBlockUnits - 1; ++u) {
          if (u >= n_left) break;
          const bool is_last = u + 1 == n_left;
          const int col = is_last ? next_col : first_col + (u + 1) * kUnitCols;
          inputs[(u + 1) % 2].Load(lane_x, col, has_both(col));
          MultiplyUnit<Type, T, kRowTiles>(codes[u % 2], u, is_last, inputs[u % 2], scales, group,
                                           sums);
          if (!is_last) codes[(u + 1) % 2].Load(units + (u + 1) * UnitBytes(kForm), lane);
        }
        if (n_left % 2 == 1) inputs[0] = inputs[1];
      }
      ring.Fetch();
    }

    auto& partial = partials[buffer];
    if (kPartials == 1 && tile != first_tile) __syncthreads();
#pragma unroll
    for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][8 * n + 2 * c + i % 2][g + i / 2 * 8] = sums.at[n][i];
      }
    }
    __syncthreads();
    if (writes) {
      float sum = 0;
#pragma unroll
      for (int v = 0; v < kRingWarps; ++v) sum += partial[v][row][of_tile];
      const float rounded = ToFloat(FromFloat<T>(sum));
      if (kGrouped && fused.is_gated) {
        const int half = is_gate ? 0 : p.w.rows / 2;
        const float value = bias == nullptr ? rounded : rounded + bias[half + output];
        if (is_gate) {
          gate = value;
        } else {
          *y = FromFloat<T>(
              GatedBy</*kExact=*/false>(fused.activation, params.groups.clamped, gate, value));
        }
      } else if (is_gate) {
        gate = ActivatedBy</*kExact=*/false>(fused.activation, rounded);
      } else if (fused.is_gated) {
        *y = FromFloat<T>(gate * rounded);
      } else if (p.y_is_float) {
        *float_y = before + sum;
      } else {
        *y = FromFloat<T>(before + sum);
      }
    }
    buffer = (buffer + 1) % kPartials;
  }
}

// n_groups: of rows; if kGrouped, the most that there can be.
template <typename T, int kRowTiles, bool kGrouped>
cudaError_t LaunchFewRows(const Stream& stream, const FusedProduct& fused, int64_t n_groups,
                          const PackedGroups& groups = {}) {
  const PackedProduct& product = fused.product;
  constexpr size_t kStaticBytes =
      size_t{kRowTiles == 1 ? 2 : 1} * kRingWarps * 8 * kRowTiles * (kTileRows + 1) * sizeof(float);
  const size_t stage_bytes = size_t{kRingWarps} * static_cast<size_t>(product.w.block_bytes());
  const int64_t n_ctas = int64_t{kBlocksOfMultiprocessor} * stream.n_multiprocessors;
  const int64_t n_turns = product.w.n_tiles() / (fused.is_gated ? 2 : 1);
  const int64_t n_strides = std::min(n_turns, CeilDiv(n_ctas, n_groups));
  const size_t normed_bytes =
      fused.norm.x != nullptr ? static_cast<size_t>(product.w.cols) * sizeof(T) : 0;
  const bool is_usual =
      kBlocksOfMultiprocessor * (kMostRingStages * stage_bytes + normed_bytes + kStaticBytes) <=
      stream.block_shared_bytes;
  const FewRowsParams params{
      .fused = fused, .groups = groups, .n_stages = is_usual ? kMostRingStages : kLeastRingStages};
  // Groups of rows that run together share a tile's weights in L2.
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(n_groups), static_cast<unsigned>(n_strides)),
      .block = kRingWarps * kWarpThreads,
      .shared_bytes = static_cast<size_t>(params.n_stages) * stage_bytes + normed_bytes};
  const auto launch = [&](auto type) {
    return Launch<&FewRowsKernel<decltype(type), T, kRowTiles, kGrouped>>(stream, shape, params);
  };
  if constexpr (kGrouped) {
    return WithForm(product.w.form, launch);  // fewer kernels
  } else {
    return WithPackedType(product.w, launch);
  }
}

template <typename T>
cudaError_t FewRows(const Stream& stream, const FusedProduct& fused) {
  const int32_t n_rows = fused.product.n_rows;
  return n_rows <= 8 ? LaunchFewRows<T, 1, false>(stream, fused, CeilDiv(n_rows, 8))
                     : LaunchFewRows<T, 2, false>(stream, fused, CeilDiv(n_rows, 16));
}

template <typename T>
cudaError_t GroupedFewRows(const Stream& stream, const GroupedPackedArgs& args) {
  static_assert(kMaxSkinnyRows == 16);
  const FusedProduct fused{
      .product = ProductOf(args), .is_gated = args.is_gated, .activation = args.activation};
  const int64_t n_groups = args.gemm.max_groups;
  return args.most_rows <= 8 ? LaunchFewRows<T, 1, true>(stream, fused, n_groups, GroupsOf(args))
                             : LaunchFewRows<T, 2, true>(stream, fused, n_groups, GroupsOf(args));
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
