// The product of fp8_skinny.h for one row.
//
// A GPU reads codes faster than it makes them into bfloat16 values, which takes 9 instructions for
// 4 codes. One instruction makes 2 codes into float16 values, exactly. So the row's inputs become
// float16, too (gemm/one_row.h), and every warp keeps its own ones in shared memory. All 8 columns
// of a tensor core's tile hold the same row, and the first one counts.
#pragma once

#include "kernels/cuda/gemm/one_row.h"
#include "kernels/cuda/gemm/skinny_kernel.h"

namespace stagecoach::kernels::cuda {
namespace {

using OneRowPieces = Pieces<Fp8Code>;
constexpr int kOneRowInputs = OneRowPieces::kUnroll * OneRowPieces::kChunk;  // per warp and turn

// The order of a warp's pieces. The start differs from CTA to CTA, not from tile to tile, so no
// tile needs a division. The sums of a row then depend on the number of CTAs, which batch-invariant
// mode does not allow.
struct OneRowTurns : WarpTurns<OneRowPieces::kTurn> {
  int first;

  __device__ __forceinline__ OneRowTurns(int first_chunk, int n_chunks, int block)
      : WarpTurns{first_chunk, n_chunks}, first(WarpTurns::First(block)) {}
  __device__ __forceinline__ int First(int /*tile*/) const { return first; }
};

// The row's inputs as float16 in shared memory. Of each four inputs, the second and the third are
// exchanged, as in the weights' rows. So a lane multiplies consecutive inputs of a chunk, and a
// lane that converts inputs writes where it read them.
struct HalfInputs {
  unsigned char* memory;  // [cols] of float16, and zeros up to a multiple of kOneRowInputs

  template <typename T>
  __device__ __forceinline__ HalfFactor Convert(const T* x, int cols, int warp, int lane) const {
    const OneRowPart<T, kOneRowInputs, kWarps> part{.cols = cols, .warp = warp, .lane = lane};
    const HalfFactor factor = part.Convert(x, [&](int at, const float(&values)[4]) {
      *reinterpret_cast<uint2*>(memory + at * sizeof(F16)) = {PackPair<F16>(values[0], values[2]),
                                                              PackPair<F16>(values[1], values[3])};
    });
    __syncwarp();
    return factor;
  }
};

// Adds the products of a chunk. Two sums take turns, because a tensor core instruction waits for
// the sum of the one before.
__device__ __forceinline__ void MultiplyOneRow(const uint4& low, const uint4& high,
                                               const uint4 (&x)[2], float (&sums)[2][4]) {
  const uint32_t of_g[4] = {low.x, low.y, low.z, low.w};
  const uint32_t of_g8[4] = {high.x, high.y, high.z, high.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t a[4];
    Fp8HalfPairs(of_g[i], a[0], a[2]);
    Fp8HalfPairs(of_g8[i], a[1], a[3]);
    const uint4& b = x[i / 2];
    Mma<F16>(sums[i % 2], a, i % 2 == 0 ? b.x : b.z, i % 2 == 0 ? b.y : b.w);
  }
}

// As SkinnyKernel, for one row and for kPlain or kGated. The register limit is that of SkinnyKernel
// with one row tile.
template <typename T, typename O, Kind kKind, bool kNormed, int kStages>
__global__ void __launch_bounds__(kWarps* kWarpThreads, 3) Fp8OneRowKernel(const SkinnyParams p) {
  using P = OneRowPieces;
  constexpr bool kGated = kKind == Kind::kGated;
  constexpr int kWritten = kGated ? kOutputs / 2 : kOutputs;  // outputs per tile
  __shared__ float partials[2][kWarps][kOutputs];
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int n_tiles = (p.rows + kOutputs - 1) / kOutputs;
  const int first_tile = static_cast<int>(blockIdx.x), stride = static_cast<int>(gridDim.x);

  const OneRowTurns turns(warp * P::kUnroll, p.cols / P::kChunk, first_tile);
  WeightRing<Fp8Code, kGated, kStages, OneRowTurns> ring{
      .from = {static_cast<const Fp8Code*>(p.w), p.rows, p.cols},
      .turns = turns,
      .memory = DynamicShared() + warp * P::kWarpBytes,
      .lane = lane,
      .n_tiles = turns.Count() > 0 ? n_tiles : 0,
      .stride = stride};
  ring.Enter(first_tile);
#pragma unroll
  for (int stage = 0; stage < kStages; ++stage) ring.Fetch();

  const HalfInputs inputs{DynamicShared() + kStages * P::kStageBytes};
  const T* x = static_cast<const T*>(p.x);
  if constexpr (kNormed) {
    T* const normed = reinterpret_cast<T*>(inputs.memory);
    NormRow(p.norm, p.cols, &partials[0][0][0], normed);
    x = normed;
  } else {
    WaitForPrevious();
  }
  const float back = inputs.Convert(x, p.cols, warp, lane).back;
  const unsigned char* const lane_x =
      inputs.memory + lane % 4 * P::kLaneInputs * static_cast<int>(sizeof(F16));

  const int32_t width = kGated ? p.rows / 2 : p.rows;
  const int thread = static_cast<int>(threadIdx.x);
  for (int tile = first_tile, buffer = 0; tile < n_tiles; tile += stride, buffer ^= 1) {
    const int output = tile * kWritten + thread;
    const bool writes = thread < kWritten && output < width;
    O* const y = static_cast<O*>(p.y) + output;
    float before = 0, bias = 0, scale = 1, up_scale = 1;
    if (writes) {
      scale = p.scales[output];
      if constexpr (kGated) {
        up_scale = p.scales[width + output];
      } else {
        if (p.add_to_y) before = ToFloat(*y);
        if (p.bias != nullptr) bias = p.bias[output];
      }
    }
    float sums[2][4] = {};
    int chunk = turns.First(tile);
    for (int left = turns.Count(); left > 0; --left) {
      uint4 lane_inputs[P::kUnroll][2];
#pragma unroll
      for (int u = 0; u < P::kUnroll; ++u) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          lane_inputs[u][i] = *reinterpret_cast<const uint4*>(
              lane_x + (chunk + u) * P::kChunk * static_cast<int>(sizeof(F16)) + 16 * i);
        }
      }
      ring.Wait();
#pragma unroll
      for (int u = 0; u < P::kUnroll; ++u) {
        MultiplyOneRow(ring.At(u, 0), ring.At(u, 1), lane_inputs[u], sums);
      }
      ring.Fetch();
      chunk = turns.After(chunk);
    }
    auto& partial = partials[buffer];
    if (lane % 4 == 0) {
      partial[warp][lane / 4] = (sums[0][0] + sums[1][0]) * back;
      partial[warp][lane / 4 + 8] = (sums[0][2] + sums[1][2]) * back;
    }
    __syncthreads();
    const auto sum_of = [&](int i, float scale_of_row) {
      float sum = 0;
#pragma unroll
      for (int v = 0; v < kWarps; ++v) sum += partial[v][i];
      return RoundedProduct(sum, scale_of_row);
    };
    if (writes) {
      if constexpr (kGated) {
        const float gate = ToFloat(FromFloat<T>(sum_of(thread, scale)));
        const float up = ToFloat(FromFloat<T>(sum_of(thread + kWritten, up_scale)));
        *y = FromFloat<O>(ActivatedBy</*kExact=*/false>(p.activation, gate) * up);
      } else {
        *y = FromFloat<O>(before + (sum_of(thread, scale) + bias));
      }
    }
  }
}

// Shared memory besides the weights.
inline size_t OneRowBytes(int32_t cols) {
  return static_cast<size_t>(CeilDiv(cols, kOneRowInputs)) * kOneRowInputs * sizeof(F16);
}

// The number of stages of weights in flight: the most with which two CTAs fit on an SM, or else the
// most with which one fits. 0: none fits.
inline int OneRowStages(const Stream& stream, int32_t cols) {
  constexpr size_t kReserved = 1024;  // by CUDA, of an SM's shared memory, per CTA
  constexpr size_t kPartials = size_t{2} * kWarps * kOutputs * sizeof(float);
  const size_t half = (stream.block_shared_bytes + kReserved) / 2 - kReserved;
  for (const size_t limit : {half, stream.block_shared_bytes}) {
    for (const int n_stages : {6, 5, 3}) {
      if (n_stages * size_t{OneRowPieces::kStageBytes} + OneRowBytes(cols) + kPartials <= limit) {
        return n_stages;
      }
    }
  }
  return 0;
}

template <typename T, typename O, Kind kKind, bool kNormed = false>
cudaError_t LaunchFp8OneRow(const Stream& stream, const SkinnyParams& params) {
  const int64_t most = int64_t{kBlocksOfMultiprocessor} * stream.n_multiprocessors;
  const auto launch = [&]<int kStages>() {
    const LaunchShape shape{
        .grid = dim3(static_cast<unsigned>(std::min(CeilDiv(params.rows, kOutputs), most))),
        .block = kWarps * kWarpThreads,
        .shared_bytes = kStages * size_t{OneRowPieces::kStageBytes} + OneRowBytes(params.cols)};
    return Launch<&Fp8OneRowKernel<T, O, kKind, kNormed, kStages>>(stream, shape, params);
  };
  switch (OneRowStages(stream, params.cols)) {
    case 6:
      return launch.template operator()<6>();
    case 5:
      return launch.template operator()<5>();
    case 3:
      return launch.template operator()<3>();
    default:
      // A normed row is short enough for every device.
      if constexpr (kNormed) return cudaErrorInvalidValue;
      return LaunchSkinny<Fp8Code, T, O, 1, kKind>(stream, params);
  }
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
