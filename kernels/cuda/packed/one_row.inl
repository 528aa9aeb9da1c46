// The kernel of one_row.h. A source file for each type includes it.
#include <algorithm>

#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/elementwise/gated.h"
#include "kernels/cuda/gemm/one_row.h"
#include "kernels/cuda/gemm/row_norm_kernel.h"
#include "kernels/cuda/packed/block_ring.h"
#include "kernels/cuda/packed/one_row.h"
#include "kernels/cuda/packed/packed_codes.h"
#include "kernels/cuda/packed/row_scales.h"

namespace stagecoach::kernels::cuda {
namespace {

// Codes as pairs of float16 values.
template <PackedForm kForm>
struct HalfCodes {
  static constexpr bool kIsNibble = kForm == PackedForm::kInt4 || kForm == PackedForm::kQ4K;
  static constexpr bool kHasZeros = kForm == PackedForm::kInt4 || kForm == PackedForm::kInt8;
  static constexpr bool kHasSums = kHasZeros || HasMinima(kForm);
  // A value is 1 / kUnit of what its code stands for.
  static constexpr float kUnit = IsFp4(kForm) ? 0x1p14f : 0x1p24f;

  // Odd pairs of 4-bit codes stay where they are in the word, which is 16 times their value. Their
  // inputs are divided by 16 instead.
  static constexpr float InputFactor(int e) {
    return kIsNibble && e / 2 % 2 == 1 ? 1.0f / 16 : 1.0f;
  }

  // The four pairs of chunk j of a unit for output g (r = 0) or g + 8.
  static __device__ __forceinline__ void Pairs(const UnitCodes<kForm, F16>& codes, int j, int r,
                                               uint32_t (&pairs)[4]) {
    if constexpr (kIsNibble) {
      const uint32_t word = codes.Word4(j, r), upper = word >> 8;
      pairs[0] = word & 0x000f000fu;
      pairs[1] = word & 0x00f000f0u;
      pairs[2] = upper & 0x000f000fu;
      pairs[3] = upper & 0x00f000f0u;
    } else if constexpr (IsFp4(kForm)) {
#pragma unroll
      for (int p = 0; p < 4; ++p) pairs[p] = Fp4Bits<F16>(codes.Word4(j, r), p);
    } else {
      const uint4& words = codes.low[j];
      const uint32_t first = r == 0 ? words.x : words.z, second = r == 0 ? words.y : words.w;
      pairs[0] = __byte_perm(first, 0, 0x4140u);
      pairs[1] = __byte_perm(first, 0, 0x4342u);
      pairs[2] = __byte_perm(second, 0, 0x4140u);
      pairs[3] = __byte_perm(second, 0, 0x4342u);
    }
  }
};

// The row in shared memory: each warp writes and reads the blocks of inputs that it multiplies.
struct SharedRow {
  F16* values;  // [n_blocks * kBlockCols]
  float* sums;  // [n_blocks * kBlockChunks]: of the inputs of each chunk's group, over kUnit

  __device__ __forceinline__ SharedRow(unsigned char* memory, int n_blocks)
      : values(reinterpret_cast<F16*>(memory)),
        sums(reinterpret_cast<float*>(values + n_blocks * kBlockCols)) {}

  // Stores a lane's eight inputs, the first of which is input `at`, and their group's sum.
  template <typename Type>
  __device__ __forceinline__ void Store(int at, const float (&inputs)[8]) const {
    using Codes = HalfCodes<Type::kForm>;
    float scaled[8], sum = 0;
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      scaled[e] = inputs[e] * Codes::InputFactor(e);
      sum += inputs[e];
    }
    StoreFloats<8>(scaled, values + at);
    if constexpr (Codes::kHasSums) {
      constexpr int kLanes = 4 << Type::kGroupShift;
#pragma unroll
      for (int mask = 1; mask < kLanes; mask *= 2) sum += __shfl_xor_sync(kAllLanes, sum, mask);
      if (at % kChunkCols == 0) sums[at / kChunkCols] = sum * (1.0f / Codes::kUnit);
    }
  }
};

// Adds the products of a block's first n_units units to out: outputs g and g + 8. x, x_sums: of the
// block, for this lane. kWhole: the block has all its units.
template <typename Type, bool kWhole>
__device__ __forceinline__ void MultiplyBlock(const PackedPart& w, const unsigned char* block,
                                              int n_units, int lane, const uint4* x,
                                              const float* x_sums, float (&out)[2]) {
  using Codes = HalfCodes<Type::kForm>;
  constexpr int kGroupChunks = 1 << Type::kGroupShift;
  OutputScales<Type> scales[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) scales[r].Load(w, block, lane / 4 + 8 * r);
  // Of the first and the last 16 inputs of chunks, because an MMA waits for the one whose sum it
  // continues.
  float first[4], second[4];
#pragma unroll
  for (int u = 0; u < kBlockUnits; ++u) {
    if (!kWhole && u >= n_units) break;
    UnitCodes<Type::kForm, F16> codes;
    codes.Load(block + w.header_bytes + u * UnitBytes(Type::kForm), lane);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int chunk = 2 * u + j;
      const uint4 inputs = x[chunk * 4];
      uint32_t low[4], high[4];
      Codes::Pairs(codes, j, 0, low);
      Codes::Pairs(codes, j, 1, high);
      const uint32_t a[4] = {low[0], high[0], low[1], high[1]};
      const uint32_t b[4] = {low[2], high[2], low[3], high[3]};
      if (chunk % kGroupChunks == 0) {
        FirstMma<F16>(first, a, inputs.x, inputs.y);
        FirstMma<F16>(second, b, inputs.z, inputs.w);
      } else {
        Mma<F16>(first, a, inputs.x, inputs.y);
        Mma<F16>(second, b, inputs.z, inputs.w);
      }
      if ((chunk + 1) % kGroupChunks != 0 && (kWhole || chunk + 1 < 2 * n_units)) continue;
      // All columns are the same row.
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const GroupScale of_group = scales[r].Of(w, chunk / kGroupChunks);
        float sum = first[2 * r] + second[2 * r];
        if constexpr (Codes::kHasZeros) sum -= of_group.zero * x_sums[chunk];
        out[r] += of_group.scale * sum;
        if constexpr (HasMinima(Type::kForm)) out[r] -= of_group.minimum * x_sums[chunk];
      }
    }
  }
}

// Sums of warps wait in shared memory until a CTA has this many tiles, so that warps seldom wait
// for each other.
constexpr int kTilesTogether = 8;
using WarpSums = float[kTilesTogether][kRingWarps][kTileRows];

// What a thread writes: an output of one of the tiles that are together, or the product of a gate
// and of what it gates, whose tiles follow one another.
template <typename T>
struct Output {
  const FusedProduct& fused;
  int place;  // of the tile, among those that are together
  int index;
  bool exists;

  // first_tile: of those that are together
  __device__ __forceinline__ Output(const FusedProduct& fused, const TileOrder& order,
                                    int first_tile)
      : fused(fused) {
    const int turn = static_cast<int>(threadIdx.x) / kTileRows;
    const int tile = first_tile + turn * order.stride;
    place = fused.is_gated ? 2 * turn : turn;
    index = tile * kTileRows + OfTile();
    exists = place < kTilesTogether && tile < (fused.is_gated ? order.half : order.n_tiles) &&
             index < fused.product.w.rows;
  }

  // What is added to the output. It is loaded early, because nothing hides its latency at the end.
  __device__ __forceinline__ float Before() const {
    const PackedProduct& p = fused.product;
    float before = 0;
    if (!exists) return before;
    if (p.add_to_y) {
      before = p.y_is_float ? static_cast<const float*>(p.y)[index]
                            : ToFloat(static_cast<const T*>(p.y)[index]);
    }
    return p.bias == nullptr ? before : before + p.bias[index];
  }

  __device__ __forceinline__ void Write(const WarpSums& sums, float before) const {
    if (!exists) return;
    const PackedProduct& p = fused.product;
    const float sum = Sum(sums, place);
    T* const y = static_cast<T*>(p.y) + index;
    if (fused.is_gated) {
      const float gate = ActivatedBy</*kExact=*/false>(fused.activation, Rounded(sum));
      *y = FromFloat<T>(gate * Rounded(Sum(sums, place + 1)));
    } else if (p.y_is_float) {
      static_cast<float*>(p.y)[index] = before + sum;
    } else {
      *y = FromFloat<T>(before + sum);
    }
  }

 private:
  static __device__ __forceinline__ int OfTile() {
    return static_cast<int>(threadIdx.x) % kTileRows;
  }
  static __device__ __forceinline__ float Rounded(float sum) { return ToFloat(FromFloat<T>(sum)); }
  static __device__ __forceinline__ float Sum(const WarpSums& sums, int place) {
    float sum = 0;
#pragma unroll
    for (int v = 0; v < kRingWarps; ++v) sum += sums[place][v][OfTile()];
    return sum;
  }
};

struct OneRowParams {
  FusedProduct fused;
  int32_t n_stages;  // of the rings
};

// A CTA takes tiles with a stride of the grid size. Its warps split the blocks of each.
template <typename Type, typename T>
__global__ void __launch_bounds__(kRingWarps* kWarpThreads, kMostOneRowCtas)
    OneRowKernel(const OneRowParams params) {
  constexpr PackedForm kForm = Type::kForm;
  const FusedProduct& fused = params.fused;
  const PackedPart& w = fused.product.w;
  const int n_stages = params.n_stages;
  __shared__ WarpSums warp_sums;
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int g = lane / 4, c = lane % 4;
  const int n_tiles = w.n_tiles(), n_units = w.n_units, n_blocks = w.n_blocks();
  const int block_bytes = w.header_bytes + kBlockUnits * UnitBytes(kForm);
  const int first_tile = static_cast<int>(blockIdx.x);
  const TileOrder order{.n_tiles = n_tiles,
                        .stride = static_cast<int>(gridDim.x),
                        .half = fused.is_gated ? n_tiles / 2 : 0};
  WarpBlocks blocks(n_blocks, order, first_tile, warp);
  BlockRing<kForm> ring{.tiles = w.tiles,
                        .tile_bytes = w.tile_bytes(),
                        .n_units = n_units,
                        .header_bytes = w.header_bytes,
                        .block_bytes = block_bytes,
                        .next = blocks,
                        .memory = DynamicShared() + warp * n_stages * block_bytes,
                        .lane = lane,
                        .n_stages = n_stages};
#pragma unroll 1
  for (int stage = 0; stage < n_stages; ++stage) ring.Fetch();

  const SharedRow row(DynamicShared() + kRingWarps * n_stages * block_bytes, n_blocks);
  const T* x = static_cast<const T*>(fused.product.x);
  if (fused.norm.x != nullptr) {
    T* const normed = reinterpret_cast<T*>(row.values);  // each lane replaces what it reads
    NormRow(fused.norm, w.cols, &warp_sums[0][0][0], normed);
    x = normed;
  } else {
    WaitForPrevious();
  }
  float before = Output<T>(fused, order, first_tile).Before();
  const OneRowPart<T, kBlockCols, kRingWarps> part{w.cols, warp, lane};
  const HalfFactor factor =
      part.Convert(x, [&](int at, const float(&inputs)[8]) { row.Store<Type>(at, inputs); });
  __syncwarp();
  const float back = factor.back * HalfCodes<kForm>::kUnit;
  const auto* const x_of_lane = reinterpret_cast<const uint4*>(row.values) + c;

  int place = 0, together = first_tile;  // the first of the tiles that are together
  for (int tile = first_tile; tile < n_tiles;) {
    float sums[2] = {};
    while (blocks.tile == tile) {
      const int block = blocks.block, n_left = n_units - block * kBlockUnits;
      blocks.Next();
      const uint4* const x_block = x_of_lane + block * (kBlockCols / 8);
      const float* const x_sums = row.sums + block * kBlockChunks;
      const unsigned char* const memory = ring.Wait();
      if (n_left >= kBlockUnits) {
        MultiplyBlock<Type, true>(w, memory, kBlockUnits, lane, x_block, x_sums, sums);
      } else {
        MultiplyBlock<Type, false>(w, memory, n_left, lane, x_block, x_sums, sums);
      }
      ring.Fetch();
    }
    if (c == 0) {
      warp_sums[place][warp][g] = sums[0] * back;
      warp_sums[place][warp][g + 8] = sums[1] * back;
    }
    tile = order.After(tile);
    if (++place < kTilesTogether && tile < n_tiles) continue;
    __syncthreads();
    Output<T>(fused, order, together).Write(warp_sums, before);
    if (tile >= n_tiles) break;
    __syncthreads();
    place = 0;
    together = tile;
    before = Output<T>(fused, order, together).Before();
  }
}

template <PackedForm kForm, typename Call>
auto WithOneRowGroups(int32_t group_shift, const Call& call) {
  switch (group_shift) {
    case 0:
      return call(PackedType<kForm, 0>{});
    case 2:
      return call(PackedType<kForm, 2>{});
    default:
      return call(PackedType<kForm, 3>{});
  }
}

// Calls call(PackedType{}) for the forms of SuitsOneRow, and returns its result.
template <typename Call>
auto WithOneRowType(const PackedPart& part, const Call& call) {
  using enum PackedForm;
  switch (part.form) {
    case kQ4K:
      return call(PackedType<kQ4K, 0>{});
    case kMxFp4:
      return call(PackedType<kMxFp4, 0>{});
    case kInt8:
      return WithOneRowGroups<kInt8>(part.group_shift, call);
    default:
      return WithOneRowGroups<kInt4>(part.group_shift, call);
  }
}

template <typename T>
cudaError_t OneRow(const Stream& stream, const FusedProduct& fused) {
  const PackedPart& w = fused.product.w;
  const OneRowShape chosen = OneRowShapeOf(stream, w);
  const int64_t n_turns = w.n_tiles() / (fused.is_gated ? 2 : 1);
  const int64_t n_ctas = int64_t{chosen.n_ctas} * stream.n_multiprocessors;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(std::min(n_turns, n_ctas))),
                          .block = kRingWarps * kWarpThreads,
                          .shared_bytes = chosen.shared_bytes};
  return WithOneRowType(w, [&](auto type) {
    return Launch<&OneRowKernel<decltype(type), T>>(stream, shape,
                                                    OneRowParams{fused, chosen.n_stages});
  });
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
