#include "kernels/cuda/recurrent/recurrence.h"

#include <algorithm>
#include <type_traits>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/last_start.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // per CTA
constexpr int kTaps = kMaxGpuConvWidth;
constexpr float kLengthEps = 1e-6f;

struct MixParams {
  RecurrentShape shape;
  float* projected;
  const float *conv, *conv_bias, *a_log, *dt_bias, *states;  // conv_bias may be null
  float* mixed;
  const int32_t *seq_starts, *seq_positions, *seq_slots, *n_seqs;
  int32_t rows_of_warp;  // at most 32
};

// The convolution of some channels of a head over consecutive rows: kPieces times kVec channels per
// lane. A narrower convolution has taps of zero for the oldest columns.
template <int kVec, int kPieces>
struct Strip {
  const MixParams& p;
  const int32_t channel, at, width;  // the first channel, its place in a row of the projection
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  float taps[kTaps][kPieces][kVec], bias[kPieces][kVec];
  float window[kTaps - 1][kPieces][kVec];  // of the rows before, the oldest first

  __device__ __forceinline__ int32_t Place(int piece) const {
    return (piece * kWarpThreads + lane) * kVec;
  }
  __device__ __forceinline__ void LoadTaps() {
    const int32_t first = kTaps - p.shape.conv_width;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        const float* const of_channel =
            p.conv + int64_t{channel + Place(i) + e} * p.shape.conv_width;
#pragma unroll
        for (int j = 0; j < kTaps; ++j) {
          const bool is_there = j >= first && Place(i) < width;
          taps[j][i][e] = is_there ? of_channel[j - first] : 0.0f;
        }
        const bool has_bias = p.conv_bias != nullptr && Place(i) < width;
        bias[i][e] = has_bias ? p.conv_bias[channel + Place(i) + e] : 0.0f;
      }
    }
  }
  __device__ __forceinline__ void Load(const float* from, float (&to)[kPieces][kVec]) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) to[i][e] = 0;
      if (Place(i) < width) LoadFloats<kVec>(from + Place(i), to[i]);
    }
  }
  __device__ __forceinline__ const float* Row(int32_t row) const {
    return p.projected + int64_t{row} * p.shape.projected_width() + at;
  }
  // Loads the window of a row of sequence `seq`.
  __device__ __forceinline__ void LoadWindow(int32_t row, int32_t seq) {
    const int32_t of_seq = row - LoadPlan(p.seq_starts + seq);
    const bool is_new = LoadPlan(p.seq_positions + seq) == 0;
    const int64_t n_channels = p.shape.n_channels();
    const float* const kept =
        p.states + LoadPlan(p.seq_slots + seq) * p.shape.state_elements() + channel;
    const int32_t n_kept = p.shape.conv_width - 1;
#pragma unroll
    for (int j = 0; j < kTaps - 1; ++j) {
      const int32_t back = kTaps - 1 - j;
      if (back <= n_kept && of_seq >= back) {
        Load(Row(row - back), window[j]);
      } else if (back <= n_kept && !is_new) {
        Load(kept + (n_kept - back + of_seq) * n_channels, window[j]);
      } else {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
#pragma unroll
          for (int e = 0; e < kVec; ++e) window[j][i][e] = 0;
        }
      }
    }
  }
  // values: silu of the convolution of a row.
  __device__ __forceinline__ void Take(int32_t row, float (&values)[kPieces][kVec]) {
    float x[kPieces][kVec];
    Load(Row(row), x);
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        float sum = bias[i][e];
#pragma unroll
        for (int j = 0; j < kTaps - 1; ++j) sum = fmaf(taps[j][i][e], window[j][i][e], sum);
        sum = fmaf(taps[kTaps - 1][i][e], x[i][e], sum);
        values[i][e] = sum * Sigmoid</*kExact=*/true>(sum);
#pragma unroll
        for (int j = 0; j + 2 < kTaps; ++j) window[j][i][e] = window[j + 1][i][e];
        window[kTaps - 2][i][e] = x[i][e];
      }
    }
  }
  __device__ __forceinline__ void Store(int32_t row, const float (&values)[kPieces][kVec]) const {
    float* const to = p.mixed + int64_t{row} * p.shape.n_channels() + channel;
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Place(i) < width) StoreFloats<kVec>(values[i], to + Place(i));
    }
  }
  // Convolves rows [begin, end). each(values) may change a row's values.
  template <typename Each>
  __device__ __forceinline__ void Run(int32_t begin, int32_t end, int32_t n_seqs,
                                      const Each& each) {
    LoadTaps();
    int32_t seq = LastStart(p.seq_starts, n_seqs, begin);
    int32_t seq_end = begin;
    for (int32_t row = begin; row < end; ++row) {
      if (row == seq_end || row == begin) {
        if (row > begin) ++seq;
        seq_end = LoadPlan(p.seq_starts + seq + 1);
        LoadWindow(row, seq);
      }
      float values[kPieces][kVec];
      Take(row, values);
      each(values);
      Store(row, values);
    }
  }
};

// Grid: x covers the rows, y the heads: all q, then all k, then all v; a warp has one head.
// kPieces: for q and k.
template <int kVec, int kPieces>
__global__ void __launch_bounds__(kWarps* kWarpThreads) MixKernel(const MixParams p) {
  // With several rows, the SMs are full: blocks of the next kernel that start early would gather on
  // the few SMs that have room first, and stay there for all their rows.
  if (p.rows_of_warp == 1) LetNextStart();
  WaitForPrevious();
  const RecurrentShape& shape = p.shape;
  const int32_t n_keys = 2 * shape.n_key_heads;
  const int32_t index =
      static_cast<int32_t>(blockIdx.y) * kWarps + static_cast<int32_t>(threadIdx.x) / kWarpThreads;
  if (index >= n_keys + shape.n_value_heads) return;
  const int32_t n_seqs = LoadPlan(p.n_seqs);
  const int32_t begin = static_cast<int32_t>(blockIdx.x) * p.rows_of_warp;
  // Rows after the last sequence are padding.
  const int32_t end = min(begin + p.rows_of_warp, LoadPlan(p.seq_starts + n_seqs));
  if (begin >= end) return;
  if (index < n_keys) {
    const bool is_q = index < shape.n_key_heads;
    const int32_t head = is_q ? index : index - shape.n_key_heads;
    const int32_t channel = is_q ? shape.q_channel(head) : shape.k_channel(head);
    const int32_t at = is_q ? shape.q_at(head) : shape.k_at(head);
    const float length = is_q ? 1.0f / sqrtf(static_cast<float>(shape.key_dim)) : 1.0f;
    Strip<kVec, kPieces> strip{p, channel, at, shape.key_dim};
    strip.Run(begin, end, n_seqs, [&](float(&values)[kPieces][kVec]) {
      if (shape.is_state_space()) return;
      float square = 0;
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) square = fmaf(values[i][e], values[i][e], square);
      }
      const float scale = length / sqrtf(WarpSum(square) + kLengthEps);
#pragma unroll
      for (int i = 0; i < kPieces; ++i) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) values[i][e] *= scale;
      }
    });
    return;
  }
  const int32_t head = index - n_keys, at = shape.v_at(head);
  const int32_t channel = shape.v_channel(head);
  constexpr int32_t kChannels = kWarpThreads * kVec;
  for (int32_t first = 0; first < shape.value_dim; first += kChannels) {
    Strip<kVec, 1> strip{p, channel + first, at + first, shape.value_dim - first};
    strip.Run(begin, end, n_seqs, [](float(&)[1][kVec]) {});
  }
  const int32_t row = begin + static_cast<int32_t>(threadIdx.x) % kWarpThreads;
  if (row >= end) return;
  float* const rates = p.projected + int64_t{row} * shape.projected_width();
  float& a = rates[shape.a_at(head)];
  const float x = a + p.dt_bias[head];
  a = x > 20.0f ? x : log1pf(expf(x));
  if (shape.is_state_space()) return;
  float& b = rates[shape.b_at(head)];
  b = Sigmoid</*kExact=*/true>(b);
  a = expf(-expf(p.a_log[head]) * a);
}

struct FinishParams {
  RecurrentShape shape;
  const float *mixed, *projected, *norm;
  void* out;
  float eps;
  int32_t n_rows, rows_of_warp;
};

// Grid: x covers the rows, y the groups of elements that a norm covers; a warp has one group.
template <typename T, int kVec>
__global__ void __launch_bounds__(kWarps* kWarpThreads) FinishKernel(const FinishParams p) {
  constexpr bool kExact = std::is_same_v<T, float>;
  LetNextStart();
  WaitForPrevious();
  const RecurrentShape& shape = p.shape;
  const int32_t n = shape.norm_group();
  const int32_t start = n * (static_cast<int32_t>(blockIdx.y) * kWarps +
                             static_cast<int32_t>(threadIdx.x) / kWarpThreads);
  if (start >= shape.values_width()) return;
  const int32_t head = start / shape.value_dim;
  const int32_t first = static_cast<int32_t>(threadIdx.x) % kWarpThreads * kVec;
  const int32_t begin = static_cast<int32_t>(blockIdx.x) * p.rows_of_warp;
  const int32_t end = min(begin + p.rows_of_warp, p.n_rows);
  // A state-space layer gates first.
  const bool gates_first = shape.is_state_space();
  const int32_t x_at = shape.v_channel(head), z_at = shape.z_at(head);
  const float* const weight = p.norm + start % shape.norm_width();
  for (int64_t row = begin; row < end; ++row) {
    const float* const x = p.mixed + row * shape.n_channels() + x_at;
    const float* const z = p.projected + row * shape.projected_width() + z_at;
    T* const out = static_cast<T*>(p.out) + row * shape.values_width() + start;
    float square = 0;
    for (int32_t i = first; i < n; i += kWarpThreads * kVec) {
      float values[kVec], gate[kVec];
      LoadFloats<kVec>(x + i, values);
      if (gates_first) LoadFloats<kVec>(z + i, gate);
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        if (gates_first) values[e] *= gate[e] * Sigmoid<kExact>(gate[e]);
        square = fmaf(values[e], values[e], square);
      }
    }
    const float scale = 1.0f / sqrtf(WarpSum(square) / static_cast<float>(n) + p.eps);
    for (int32_t i = first; i < n; i += kWarpThreads * kVec) {
      float values[kVec], gate[kVec], norm[kVec];
      LoadFloats<kVec>(x + i, values);
      LoadFloats<kVec>(z + i, gate);
      LoadFloats<kVec>(weight + i, norm);
#pragma unroll
      for (int e = 0; e < kVec; ++e) {
        values[e] *= scale * norm[e] * (gate[e] * Sigmoid<kExact>(gate[e]));
      }
      StoreFloats<kVec>(values, out + i);
    }
  }
}

// Whether rows and heads of all arrays begin at multiples of 4 elements.
bool IsWide(const RecurrentShape& shape) {
  return shape.key_dim % 4 == 0 && shape.value_dim % 4 == 0 && shape.projected_width() % 4 == 0 &&
         shape.conv_elements() % 4 == 0 && shape.state_elements() % 4 == 0;
}

// Rows per warp, so that a GPU is filled before a warp gets several rows.
int32_t RowsOfWarp(int32_t n_rows, int32_t n_heads) {
  constexpr int64_t kEnoughWarps = 8192;
  constexpr int64_t kMost = 16;
  return static_cast<int32_t>(
      std::clamp<int64_t>(int64_t{n_rows} * n_heads / kEnoughWarps, 1, kMost));
}

LaunchShape ShapeFor(int32_t n_rows, int32_t rows_of_warp, int32_t n_heads) {
  return {.grid = dim3(static_cast<unsigned>(CeilDiv(n_rows, rows_of_warp)),
                       static_cast<unsigned>(CeilDiv(n_heads, kWarps))),
          .block = kWarps * kWarpThreads};
}

}  // namespace

cudaError_t MixChannels(const Stream& stream, const RecurrenceArgs& args,
                        const RecurrencePlan& plan) {
  const RecurrentShape& shape = args.shape;
  SC_CHECK(shape.key_dim <= kMaxGpuRecurrentKeys && shape.conv_width <= kTaps);
  const StepInputs& step = *args.step;
  const int32_t n_heads = 2 * shape.n_key_heads + shape.n_value_heads;
  const MixParams params{.shape = shape,
                         .projected = args.projected,
                         .conv = args.conv,
                         .conv_bias = args.conv_bias,
                         .a_log = args.a_log,
                         .dt_bias = args.dt_bias,
                         .states = args.states,
                         .mixed = args.mixed,
                         .seq_starts = step.seq_starts,
                         .seq_positions = step.seq_positions,
                         .seq_slots = step.seq_slots,
                         .n_seqs = plan.n_seqs,
                         .rows_of_warp = RowsOfWarp(step.n_tokens, n_heads)};
  const LaunchShape launch = ShapeFor(step.n_tokens, params.rows_of_warp, n_heads);
  if (!IsWide(shape)) return Launch<&MixKernel<1, 8>>(stream, launch, params);
  return shape.key_dim <= 128 ? Launch<&MixKernel<4, 1>>(stream, launch, params)
                              : Launch<&MixKernel<4, 2>>(stream, launch, params);
}

cudaError_t FinishHeads(const Stream& stream, const RecurrenceArgs& args) {
  const RecurrentShape& shape = args.shape;
  const int32_t n_groups = shape.values_width() / shape.norm_group();
  const FinishParams params{.shape = shape,
                            .mixed = args.mixed,
                            .projected = args.projected,
                            .norm = args.norm,
                            .out = args.out.data,
                            .eps = args.norm_eps,
                            .n_rows = args.step->n_tokens,
                            .rows_of_warp = RowsOfWarp(args.step->n_tokens, n_groups)};
  const LaunchShape launch = ShapeFor(params.n_rows, params.rows_of_warp, n_groups);
  return WithType(args.out.dtype, [&](auto type) {
    using T = decltype(type);
    return IsWide(shape) ? Launch<&FinishKernel<T, 4>>(stream, launch, params)
                         : Launch<&FinishKernel<T, 1>>(stream, launch, params);
  });
}

cudaError_t Recurrence(const Stream& stream, const RecurrenceArgs& args,
                       const RecurrencePlan& plan) {
  cudaError_t error = MixChannels(stream, args, plan);
  if (error == cudaSuccess) error = RunStates(stream, args, plan);
  if (error == cudaSuccess) error = FinishHeads(stream, args);
  return error;
}

}  // namespace stagecoach::kernels::cuda
