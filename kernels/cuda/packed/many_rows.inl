// The kernel of many_rows.h. A source file for each type includes it.
#include <algorithm>

#include "kernels/cuda/device/mma.h"
#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/packed/many_rows.h"
#include "kernels/cuda/packed/packed_codes.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kManyWarps = 8, kManyThreads = kManyWarps * kWarpThreads;
constexpr int kWarpTiles = 2;                         // of 16 outputs
constexpr int kStripTiles = kManyWarps * kWarpTiles;  // per CTA
constexpr int kInputBytes = kBlockCols * 2;           // of a row and block
constexpr int kSlots = kInputBytes / 16;
constexpr int kMostManyStages = 4;

struct ManyRowsParams {
  PackedProduct product;
  int32_t n_stages;  // blocks in shared memory
};

// Where a stage has 16 bytes of a row's inputs. The XOR spreads what lanes read together over all
// banks.
__device__ __forceinline__ int InputPlace(int row, int slot) {
  return row * kInputBytes + (slot ^ (row % 2 * 4 + row / 2 % 2 * 2)) * 16;
}

// A CTA's outputs: each warp multiplies kWarpTiles tiles of them.
template <typename Type, typename T, int kRowTiles>
struct Strip {
  static constexpr PackedForm kForm = Type::kForm;
  static constexpr int kRows = 8 * kRowTiles;

  const PackedProduct& p;
  int first_tile;  // of the warp
  int warp, lane;
  int block_bytes, stage_bytes;

  __device__ __forceinline__ unsigned char* Inputs(int stage) const {
    return DynamicShared() + stage * stage_bytes;
  }
  __device__ __forceinline__ unsigned char* Weights(int stage, int t) const {
    return Inputs(stage) + kRows * kInputBytes + (warp * kWarpTiles + t) * block_bytes;
  }

  __device__ __forceinline__ void FetchWeights(int block, int stage) const {
    const int n_units = min(kBlockUnits, p.w.n_units - block * kBlockUnits);
    const int bytes = p.w.header_bytes + n_units * UnitBytes(kForm);
    const int64_t tile_bytes =
        int64_t{p.w.n_units} * UnitBytes(kForm) + int64_t{p.w.n_blocks()} * p.w.header_bytes;
#pragma unroll
    for (int t = 0; t < kWarpTiles; ++t) {
      if (first_tile + t >= p.w.n_tiles()) continue;
      const unsigned char* const from =
          p.w.tiles + (first_tile + t) * tile_bytes + int64_t{block} * block_bytes;
      unsigned char* const to = Weights(stage, t);
      for (int at = 16 * lane; at < bytes; at += 16 * kWarpThreads) {
        CopyAsync16(to + at, from + at, true);
      }
    }
  }
  __device__ __forceinline__ void FetchInputs(int block, int stage) const {
    unsigned char* const to = Inputs(stage);
    const T* const x = static_cast<const T*>(p.x);
#pragma unroll
    for (int i = 0; i < kRows * kSlots / kManyThreads; ++i) {
      const int row = i * (kManyThreads / kSlots) + static_cast<int>(threadIdx.x) / kSlots;
      const int slot = static_cast<int>(threadIdx.x) % kSlots;
      const int col = block * kBlockCols + slot * 8;
      const bool inside = row < p.n_rows && col < p.w.cols;
      CopyAsync16(to + InputPlace(row, slot), x + (inside ? int64_t{row} * p.w.cols + col : 0),
                  inside);
    }
  }

  // Adds the products of the block in `stage`.
  __device__ __forceinline__ void Multiply(int block, int stage,
                                           float (&sums)[kWarpTiles][kRowTiles][4]) const {
    const int g = lane / 4, c = lane % 4;
    const int n_units = min(kBlockUnits, p.w.n_units - block * kBlockUnits);
    const unsigned char* const x = Inputs(stage);
    BlockScales<Type, T> scales[kWarpTiles] = {{p.w, Weights(stage, 0), g},
                                               {p.w, Weights(stage, 1), g}};
#pragma unroll 1
    for (int u = 0; u < n_units; ++u) {
      UnitCodes<kForm, T> codes[kWarpTiles];
#pragma unroll
      for (int t = 0; t < kWarpTiles; ++t) {
        codes[t].Load(Weights(stage, t) + p.w.header_bytes + u * UnitBytes(kForm), lane);
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t first[kWarpTiles][4], second[kWarpTiles][4];
#pragma unroll
        for (int t = 0; t < kWarpTiles; ++t) {
          scales[t].Enter(2 * u + j);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float values[8];
            Values8<Type, T>(codes[t], scales[t], j, r, values);
            first[t][r] = PackPair<T>(values[0], values[1]);
            first[t][2 + r] = PackPair<T>(values[2], values[3]);
            second[t][r] = PackPair<T>(values[4], values[5]);
            second[t][2 + r] = PackPair<T>(values[6], values[7]);
          }
        }
#pragma unroll
        for (int n = 0; n < kRowTiles; ++n) {
          const uint4 b = InputsOf(x, 8 * n + g, 2 * u + j, c);
#pragma unroll
          for (int t = 0; t < kWarpTiles; ++t) {
            Mma<T>(sums[t][n], first[t], b.x, b.y);
            Mma<T>(sums[t][n], second[t], b.z, b.w);
          }
        }
      }
    }
  }

  static __device__ __forceinline__ uint4 InputsOf(const unsigned char* x, int row, int chunk,
                                                   int c) {
    if constexpr (HasHalfScales(kForm)) {
      const int slot = 4 * chunk + c / 2, within = c % 2 * 8;
      const uint2 low = *reinterpret_cast<const uint2*>(x + InputPlace(row, slot) + within);
      const uint2 high = *reinterpret_cast<const uint2*>(x + InputPlace(row, slot + 2) + within);
      return make_uint4(low.x, low.y, high.x, high.y);
    } else {
      return *reinterpret_cast<const uint4*>(x + InputPlace(row, 4 * chunk + c));
    }
  }

  // Writes y.
  __device__ __forceinline__ void Write(const float (&sums)[kWarpTiles][kRowTiles][4]) const {
    const int g = lane / 4, c = lane % 4;
#pragma unroll
    for (int t = 0; t < kWarpTiles; ++t) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int row = 8 * n + 2 * c + i % 2;
          const int output = (first_tile + t) * kTileRows + g + i / 2 * 8;
          if (row >= p.n_rows || output >= p.w.rows) continue;
          const int64_t at = int64_t{row} * p.y_stride + output;
          float sum = sums[t][n][i];
          if (p.bias != nullptr) sum += p.bias[output];
          if (p.y_is_float) {
            float* const y = static_cast<float*>(p.y) + at;
            *y = p.add_to_y ? *y + sum : sum;
          } else {
            T* const y = static_cast<T*>(p.y) + at;
            *y = FromFloat<T>(p.add_to_y ? ToFloat(*y) + sum : sum);
          }
        }
      }
    }
  }
};

// Grid: strips of outputs.
template <typename Type, typename T, int kRowTiles>
__global__ void __launch_bounds__(kManyThreads, 1) ManyRowsKernel(const ManyRowsParams params) {
  LetNextStart();
  const PackedProduct& p = params.product;
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int n_blocks = p.w.n_blocks(), n_stages = params.n_stages;
  const int block_bytes = p.w.header_bytes + kBlockUnits * UnitBytes(Type::kForm);
  const Strip<Type, T, kRowTiles> strip{
      .p = p,
      .first_tile = static_cast<int>(blockIdx.x) * kStripTiles + warp * kWarpTiles,
      .warp = warp,
      .lane = lane,
      .block_bytes = block_bytes,
      .stage_bytes = 8 * kRowTiles * kInputBytes + kStripTiles * block_bytes};

  for (int i = 0; i < min(n_stages - 1, n_blocks); ++i) strip.FetchWeights(i, i);
  WaitForPrevious();
  for (int i = 0; i < n_stages - 1; ++i) {
    if (i < n_blocks) strip.FetchInputs(i, i);
    CommitCopies();
  }
  float sums[kWarpTiles][kRowTiles][4] = {};
  int stage = 0, to_fill = n_stages - 1;
  for (int block = 0; block < n_blocks; ++block) {
    if (n_stages == 4) {
      WaitForCopies<2>();
    } else if (n_stages == 3) {
      WaitForCopies<1>();
    } else {
      WaitForCopies<0>();
    }
    __syncthreads();
    if (block + n_stages - 1 < n_blocks) {
      strip.FetchWeights(block + n_stages - 1, to_fill);
      strip.FetchInputs(block + n_stages - 1, to_fill);
    }
    CommitCopies();
    to_fill = stage;
    strip.Multiply(block, stage, sums);
    stage = stage + 1 == n_stages ? 0 : stage + 1;
  }

  strip.Write(sums);
}

template <typename T, int kRowTiles>
cudaError_t LaunchManyRows(const Stream& stream, const PackedProduct& product) {
  const size_t stage_bytes = size_t{8} * kRowTiles * kInputBytes +
                             size_t{kStripTiles} * static_cast<size_t>(product.w.block_bytes());
  const auto n_stages = std::min<size_t>(kMostManyStages, stream.block_shared_bytes / stage_bytes);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(CeilDiv(product.w.n_tiles(), kStripTiles))),
      .block = kManyThreads,
      .shared_bytes = n_stages * stage_bytes};
  const ManyRowsParams params{.product = product, .n_stages = static_cast<int32_t>(n_stages)};
  return WithForm(product.w.form, [&](auto type) {
    return Launch<&ManyRowsKernel<decltype(type), T, kRowTiles>>(stream, shape, params);
  });
}

template <typename T>
cudaError_t ManyRows(const Stream& stream, const PackedProduct& product) {
  return product.n_rows <= 32 ? LaunchManyRows<T, 4>(stream, product)
                              : LaunchManyRows<T, 8>(stream, product);
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
