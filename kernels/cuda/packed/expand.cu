#include "kernels/cuda/packed/expand.h"

#include <algorithm>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/packed/packed_codes.h"
#include "kernels/cuda/packed/packed_groups.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // per CTA

// Calls use(r, chunk of the part, values) for the lane's values of a unit.
template <typename Type, typename T, typename Use>
__device__ __forceinline__ void ForUnit(const PackedPart& part, int tile, int unit, int lane,
                                        const Use& use) {
  const unsigned char* const block =
      part.tiles + tile * part.tile_bytes() + int64_t{unit / kBlockUnits} * part.block_bytes();
  constexpr PackedForm kForm = Type::kForm;
  BlockScales<Type, T> scales(part, block, lane / 4);
  UnitCodes<kForm, T> codes;
  const int of_block = unit % kBlockUnits;
  codes.Load(block + part.header_bytes + of_block * UnitBytes(kForm), lane);
#pragma unroll
  for (int u = 0; u < kBlockUnits; ++u) {
    if (u != of_block) continue;  // the scales' place is known to the compiler
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      if ((2 * unit + j) * kChunkCols >= part.cols) continue;
      scales.Enter(2 * u + j);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float values[8];
        Values8<Type, T>(codes, scales, j, r, values);
        use(r, 2 * unit + j, values);
      }
    }
  }
}

// Four lanes have 8 of a chunk's 32 values each: two words of the first 16 and two of the last 16.
// Returns 8 values in a row, as the lane's place says.
__device__ __forceinline__ uint4 Contiguous(const uint4& of_lane, int lane) {
  const int from = lane - lane % 4 + lane % 2 * 2;
  const bool is_last = lane % 4 >= 2;
  const auto word = [&](uint32_t first, uint32_t last, int source) {
    const uint32_t a = __shfl_sync(kAllLanes, first, source);
    const uint32_t b = __shfl_sync(kAllLanes, last, source);
    return is_last ? b : a;
  };
  return make_uint4(word(of_lane.x, of_lane.z, from), word(of_lane.y, of_lane.w, from),
                    word(of_lane.x, of_lane.z, from + 1), word(of_lane.y, of_lane.w, from + 1));
}

// One warp per unit of each matrix.
template <typename Type, typename T>
__global__ void __launch_bounds__(kWarps* kWarpThreads) ExpandKernel(const ExpandManyArgs p) {
  constexpr PackedForm kForm = Type::kForm;
  WaitForPrevious();
  PackedPart part = p.part;
  const int matrix = static_cast<int>(blockIdx.y);
  if (p.weights != nullptr) {
    const void* const memory = p.weights[matrix];
    part.tiles = const_cast<unsigned char*>(static_cast<const unsigned char*>(memory)) + p.tiles_at;
  }
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int64_t item = int64_t{blockIdx.x} * kWarps + warp;
  const int tile = static_cast<int>(item / part.n_units);
  const int unit = static_cast<int>(item % part.n_units);
  if (tile >= part.n_tiles()) return;
  ForUnit<Type, T>(part, tile, unit, lane, [&](int r, int chunk, const float(&values)[8]) {
    const int row = tile * kTileRows + lane / 4 + 8 * r, c = lane % 4;
    uint4 eight = make_uint4(PackPair<T>(values[0], values[1]), PackPair<T>(values[2], values[3]),
                             PackPair<T>(values[4], values[5]), PackPair<T>(values[6], values[7]));
    if (HasHalfScales(kForm) && part.order == nullptr) eight = Contiguous(eight, lane);
    if (row >= part.rows) return;
    T* const to = static_cast<T*>(p.to) + matrix * p.to_step + int64_t{row} * part.cols;
    const int first = chunk * kChunkCols;
    if (part.order == nullptr) {
      *reinterpret_cast<uint4*>(to + first + 8 * c) = eight;
      return;
    }
#pragma unroll
    for (int e = 0; e < 8; ++e) {
      to[part.order[first + InputOf<kForm>(c, e)]] = FromFloat<T>(values[e]);
    }
  });
}

constexpr int kPlainRows = 4;

struct PlainParams {
  PackedProduct product;
  PackedGroups groups;
};

// One CTA per kPlainRows rows and tile of outputs; its warps share the units.
template <typename Type>
__global__ void __launch_bounds__(kWarps* kWarpThreads)
    PlainPackedKernel(const PlainParams params) {
  __shared__ float partials[kWarps][kPlainRows][kTileRows];
  LetNextStart();
  WaitForPrevious();
  const PackedProduct& p = params.product;
  PackedPart w = p.w;
  int first_row = static_cast<int>(blockIdx.x) * kPlainRows, end_row = p.n_rows;
  if (params.groups.is_on()) {
    constexpr int kPieces = kMaxSkinnyRows / kPlainRows;
    const int piece = static_cast<int>(blockIdx.x) % kPieces;
    const int at = static_cast<int>(blockIdx.x) / kPieces;
    if (at >= *params.groups.n_groups) return;
    const RowGroup group = params.groups.groups[at];
    w.tiles = const_cast<unsigned char*>(params.groups.TilesOf(group.matrix));
    first_row = group.first_row + piece * kPlainRows;
    end_row = group.first_row + group.n_rows;
    if (first_row >= end_row) return;
  }
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int tile = static_cast<int>(blockIdx.y), c = lane % 4;
  const float* const x = static_cast<const float*>(p.x);
  float sums[kPlainRows][2] = {};
  for (int unit = warp; unit < w.n_units; unit += kWarps) {
    ForUnit<Type, BF16>(w, tile, unit, lane, [&](int r, int chunk, const float(&values)[8]) {
#pragma unroll
      for (int n = 0; n < kPlainRows; ++n) {
        if (first_row + n >= end_row) continue;
        const float* const row =
            x + int64_t{params.groups.RowOfX(first_row + n)} * w.cols + chunk * kChunkCols;
#pragma unroll
        for (int e = 0; e < 8; ++e) sums[n][r] += row[InputOf<Type::kForm>(c, e)] * values[e];
      }
    });
  }
#pragma unroll
  for (int n = 0; n < kPlainRows; ++n) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = sums[n][r];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      if (c == 0) partials[warp][n][lane / 4 + 8 * r] = sum;
    }
  }
  __syncthreads();
  const int n = static_cast<int>(threadIdx.x) / kTileRows;
  const int of_tile = static_cast<int>(threadIdx.x) % kTileRows;
  const int row = first_row + n, output = tile * kTileRows + of_tile;
  if (n >= kPlainRows || row >= end_row || output >= w.rows) return;
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kWarps; ++v) sum += partials[v][n][of_tile];
  float* const y =
      static_cast<float*>(p.y) + int64_t{params.groups.RowOfY(row)} * p.y_stride + output;
  if (p.bias != nullptr) sum += p.bias[output];
  *y = p.add_to_y ? *y + sum : sum;
}

// One warp per token and unit: it decodes the whole unit for the sake of one of its 16 rows.
template <typename Type, typename O>
__global__ void __launch_bounds__(kWarps* kWarpThreads) EmbedKernel(const PackedEmbed p) {
  LetNextStart();
  WaitForPrevious();
  const PackedPart& table = p.table;
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int64_t item = int64_t{blockIdx.x} * kWarps + warp;
  const int64_t token = item / table.n_units;
  if (token >= p.n_tokens) return;
  const int row = p.ids[token] - p.first_row;
  if (row < 0 || row >= table.rows) return;
  O* const out = static_cast<O*>(p.out.data) + token * table.cols;
  ForUnit<Type, BF16>(table, row / kTileRows, static_cast<int>(item % table.n_units), lane,
                      [&](int r, int chunk, const float(&values)[8]) {
                        if (lane / 4 + 8 * r != row % kTileRows) return;
#pragma unroll
                        for (int e = 0; e < 8; ++e) {
                          const int i = chunk * kChunkCols + InputOf<Type::kForm>(lane % 4, e);
                          out[table.order == nullptr ? i : table.order[i]] =
                              FromFloat<O>(values[e] * p.scale);
                        }
                      });
}

}  // namespace

cudaError_t Expand(const Stream& stream, const PackedPart& part, DType dtype, void* to) {
  return ExpandMany(
      stream,
      {.part = part, .weights = nullptr, .tiles_at = 0, .n_matrices = 1, .to = to, .to_step = 0},
      dtype);
}

cudaError_t ExpandMany(const Stream& stream, const ExpandManyArgs& args, DType dtype) {
  SC_CHECK(dtype != DType::kF32);
  const int64_t n = int64_t{args.part.n_tiles()} * args.part.n_units;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(n, kWarps)),
                                       static_cast<unsigned>(args.n_matrices)),
                          .block = kWarps * kWarpThreads};
  return WithForm(args.part.form, [&](auto type) {
    return dtype == DType::kBF16 ? Launch<&ExpandKernel<decltype(type), BF16>>(stream, shape, args)
                                 : Launch<&ExpandKernel<decltype(type), F16>>(stream, shape, args);
  });
}

namespace {

cudaError_t LaunchPlain(const Stream& stream, const PlainParams& params, int64_t n_pieces) {
  SC_CHECK(params.product.y_is_float);
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_pieces),
                                       static_cast<unsigned>(params.product.w.n_tiles())),
                          .block = kWarps * kWarpThreads};
  return WithForm(params.product.w.form, [&](auto type) {
    return Launch<&PlainPackedKernel<decltype(type)>>(stream, shape, params);
  });
}

}  // namespace

cudaError_t PlainPackedProduct(const Stream& stream, const PackedProduct& product) {
  return LaunchPlain(stream, {.product = product, .groups = {}},
                     CeilDiv(product.n_rows, kPlainRows));
}

cudaError_t GroupedPlainPackedProduct(const Stream& stream, const GroupedPackedArgs& args) {
  return LaunchPlain(stream, {.product = ProductOf(args), .groups = GroupsOf(args)},
                     int64_t{args.gemm.max_groups} * (kMaxSkinnyRows / kPlainRows));
}

cudaError_t EmbedPacked(const Stream& stream, const PackedEmbed& args) {
  const int64_t n = int64_t{args.n_tokens} * args.table.n_units;
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(CeilDiv(n, kWarps))),
                          .block = kWarps * kWarpThreads};
  return WithForm(args.table.form, [&](auto packed_type) {
    return WithType(args.out.dtype, [&](auto type) {
      return Launch<&EmbedKernel<decltype(packed_type), decltype(type)>>(stream, shape, args);
    });
  });
}

}  // namespace stagecoach::kernels::cuda
