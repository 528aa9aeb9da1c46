#include "kernels/cuda/elementwise/elementwise.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/elementwise/activated.h"
#include "kernels/cuda/elementwise/biased_activation.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

// 8 elements per thread if `width` allows it, else 1.
constexpr int kWide = 8;
bool IsWide(int64_t width) { return width % kWide == 0; }

LaunchShape ShapeFor(const Stream& stream, int64_t n_items) {
  // With more items than this many CTAs hold, each thread takes several.
  const int64_t most = int64_t{stream.n_multiprocessors} * 16;
  const int64_t blocks = CeilDiv(n_items, kThreads);
  return {.grid = dim3(static_cast<unsigned>(blocks < most ? blocks : most)), .block = kThreads};
}

// Calls body(i) for i in [0, n), distributed over the grid.
template <typename Body>
__device__ __forceinline__ void ForEach(int64_t n, const Body& body) {
  const int64_t stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n; i += stride) body(i);
}

struct EmbedParams {
  const int32_t *ids, *positions;
  const void *table, *position_table;
  void* out;
  int64_t n_items;
  int32_t width, position_offset;
  float scale;
};

template <typename W, typename O, int kN>
__global__ void EmbedKernel(const EmbedParams p) {
  LetNextStart();
  WaitForPrevious();
  const int32_t per_row = p.width / kN;
  ForEach(p.n_items, [&](int64_t item) {
    const int64_t t = item / per_row;
    const int64_t i = item % per_row * kN;
    float sum[kN] = {};
    if (p.table != nullptr) {
      LoadFloats<kN>(static_cast<const W*>(p.table) + int64_t{p.ids[t]} * p.width + i, sum);
#pragma unroll
      for (int e = 0; e < kN; ++e) sum[e] *= p.scale;
    }
    if (p.position_table != nullptr) {
      float row[kN];
      const int64_t position = int64_t{p.positions[t]} + p.position_offset;
      LoadFloats<kN>(static_cast<const W*>(p.position_table) + position * p.width + i, row);
#pragma unroll
      for (int e = 0; e < kN; ++e) sum[e] += row[e];
    }
    StoreFloats<kN>(sum, static_cast<O*>(p.out) + t * p.width + i);
  });
}

struct GatherParams {
  const void* x;
  const int32_t* rows;
  void* out;
  int64_t n_items;
  int32_t width;
};

template <typename T, typename O, int kN>
__global__ void GatherKernel(const GatherParams p) {
  LetNextStart();
  WaitForPrevious();
  const int32_t per_row = p.width / kN;
  ForEach(p.n_items, [&](int64_t item) {
    const int64_t r = item / per_row;
    const int64_t i = item % per_row * kN;
    const int64_t row = p.rows != nullptr ? p.rows[r] : r;
    float values[kN];
    LoadFloats<kN>(static_cast<const T*>(p.x) + row * p.width + i, values);
    StoreFloats<kN>(values, static_cast<O*>(p.out) + r * p.width + i);
  });
}

struct ActivateParams {
  const void* x;
  void* out;
  int32_t n_rows, width;
  bool gated;
  const float* up;  // or null
  int64_t up_stride;
};

// Grid: x covers the columns, y the rows.
template <typename T, Activation kKind, int kN>
__global__ void ActivateKernel(const ActivateParams p) {
  constexpr bool kExact = std::is_same_v<T, float>;
  LetNextStart();
  WaitForPrevious();
  const int32_t i = static_cast<int32_t>(blockIdx.x * blockDim.x + threadIdx.x) * kN;
  if (i >= p.width) return;
  for (int64_t row = blockIdx.y; row < p.n_rows; row += gridDim.y) {
    const T* const x = static_cast<const T*>(p.x) + row * p.width * (p.gated ? 2 : 1) + i;
    float values[kN], up[kN];
    LoadFloats<kN>(x, values);
    if (p.gated) LoadFloats<kN>(x + p.width, up);
    if (p.up != nullptr) LoadFloats<kN>(p.up + row * p.up_stride + i, up);
#pragma unroll
    for (int e = 0; e < kN; ++e) values[e] = Activated<kKind, kExact>(values[e]);
    if (p.gated || p.up != nullptr) {
#pragma unroll
      for (int e = 0; e < kN; ++e) values[e] *= up[e];
    }
    StoreFloats<kN>(values, static_cast<T*>(p.out) + row * p.width + i);
  }
}

template <typename T, Activation kKind>
cudaError_t ActivateOf(const Stream& stream, const ActivateParams& params) {
  constexpr int64_t kMaxGridY = 65535;
  const auto shape = [&](int n) {
    return LaunchShape{
        .grid = dim3(static_cast<unsigned>(CeilDiv(CeilDiv(params.width, n), kThreads)),
                     static_cast<unsigned>(params.n_rows < kMaxGridY ? params.n_rows : kMaxGridY)),
        .block = kThreads};
  };
  return IsWide(params.width)
             ? Launch<&ActivateKernel<T, kKind, kWide>>(stream, shape(kWide), params)
             : Launch<&ActivateKernel<T, kKind, 1>>(stream, shape(1), params);
}

struct ScaleParams {
  float* x;
  int64_t n;
  const float* factor;
};

__global__ void ScaleKernel(const ScaleParams p) {
  LetNextStart();
  WaitForPrevious();
  const float factor = *p.factor;
  ForEach(p.n, [&](int64_t i) { p.x[i] *= factor; });
}

struct SoftCapParams {
  float* x;
  int64_t n;
  float cap;
};

__global__ void SoftCapKernel(const SoftCapParams p) {
  LetNextStart();
  WaitForPrevious();
  ForEach(p.n, [&](int64_t i) { p.x[i] = p.cap * tanhf(p.x[i] / p.cap); });
}

struct BiasParams {
  void* y;
  const float* bias;
  int64_t n;
  int32_t width;
};

template <typename T>
__global__ void BiasKernel(const BiasParams p) {
  LetNextStart();
  WaitForPrevious();
  T* const y = static_cast<T*>(p.y);
  ForEach(p.n, [&](int64_t i) { y[i] = FromFloat<T>(ToFloat(y[i]) + p.bias[i % p.width]); });
}

struct ConvertParams {
  const void* from;
  void* to;
  int64_t n;
  int64_t n_wide;  // groups of kWide values at the front; the rest goes one by one
};

template <typename F, typename T>
__global__ void ConvertKernel(const ConvertParams p) {
  LetNextStart();
  WaitForPrevious();
  const F* const from = static_cast<const F*>(p.from);
  T* const to = static_cast<T*>(p.to);
  ForEach(p.n_wide, [&](int64_t item) {
    float values[kWide];
    LoadFloats<kWide>(from + item * kWide, values);
    StoreFloats<kWide>(values, to + item * kWide);
  });
  const int64_t n_done = p.n_wide * kWide;
  ForEach(p.n - n_done,
          [&](int64_t i) { to[n_done + i] = FromFloat<T>(ToFloat(from[n_done + i])); });
}

}  // namespace

cudaError_t Embed(const Stream& stream, const EmbedArgs& args) {
  const Matrix& any = args.table != nullptr ? *args.table : *args.position_table;
  SC_CHECK(args.table == nullptr || args.position_table == nullptr ||
           args.table->dtype == args.position_table->dtype);
  EmbedParams params{.ids = args.ids,
                     .positions = args.positions,
                     .table = args.table != nullptr ? args.table->buffer.data.get() : nullptr,
                     .position_table = args.position_table != nullptr
                                           ? args.position_table->buffer.data.get()
                                           : nullptr,
                     .out = args.out.data,
                     .n_items = int64_t{args.n_tokens} * any.cols,
                     .width = any.cols,
                     .position_offset = args.position_offset,
                     .scale = args.scale};
  const auto launch = [&](auto weight, auto out) {
    using W = decltype(weight);
    using O = decltype(out);
    if (!IsWide(any.cols)) {
      return Launch<&EmbedKernel<W, O, 1>>(stream, ShapeFor(stream, params.n_items), params);
    }
    params.n_items /= kWide;
    return Launch<&EmbedKernel<W, O, kWide>>(stream, ShapeFor(stream, params.n_items), params);
  };
  if (args.out.dtype == DType::kF32) {
    return WithType(any.dtype, [&](auto weight) { return launch(weight, float{}); });
  }
  SC_CHECK(args.out.dtype == any.dtype);
  return WithType(any.dtype, [&](auto type) { return launch(type, type); });
}

cudaError_t GatherRows(const Stream& stream, const GatherRowsArgs& args) {
  GatherParams params{.x = args.x.data,
                      .rows = args.rows,
                      .out = args.out.data,
                      .n_items = int64_t{args.n_rows} * args.width,
                      .width = args.width};
  const auto launch = [&](auto x, auto out) {
    using T = decltype(x);
    using O = decltype(out);
    if (!IsWide(args.width)) {
      return Launch<&GatherKernel<T, O, 1>>(stream, ShapeFor(stream, params.n_items), params);
    }
    params.n_items /= kWide;
    return Launch<&GatherKernel<T, O, kWide>>(stream, ShapeFor(stream, params.n_items), params);
  };
  if (args.x.dtype == DType::kF32) {
    return WithType(args.out.dtype, [&](auto out) { return launch(float{}, out); });
  }
  SC_CHECK(args.x.dtype == args.out.dtype);
  return WithType(args.out.dtype, [&](auto type) { return launch(type, type); });
}

cudaError_t Activate(const Stream& stream, const ActivationArgs& args) {
  if (args.gated && args.clamped.limit > 0) return ActivateBiased(stream, args, {});
  SC_CHECK(!args.gated || args.up == nullptr);
  SC_CHECK(args.x.dtype == args.out.dtype);
  const ActivateParams params{.x = args.x.data,
                              .out = args.out.data,
                              .n_rows = args.n_rows,
                              .width = args.width,
                              .gated = args.gated,
                              .up = args.up,
                              .up_stride = args.up_stride};
  return WithType(args.x.dtype, [&](auto type) {
    using T = decltype(type);
    switch (args.kind) {
      case Activation::kRelu:
        return ActivateOf<T, Activation::kRelu>(stream, params);
      case Activation::kReluSquared:
        return ActivateOf<T, Activation::kReluSquared>(stream, params);
      case Activation::kGelu:
        return ActivateOf<T, Activation::kGelu>(stream, params);
      case Activation::kGeluTanh:
        return ActivateOf<T, Activation::kGeluTanh>(stream, params);
      case Activation::kSilu:
        break;
    }
    return ActivateOf<T, Activation::kSilu>(stream, params);
  });
}

cudaError_t Scale(const Stream& stream, float* x, int64_t n, const float* factor) {
  return Launch<&ScaleKernel>(stream, ShapeFor(stream, n), ScaleParams{x, n, factor});
}

cudaError_t SoftCap(const Stream& stream, float* x, int64_t n, float cap) {
  return Launch<&SoftCapKernel>(stream, ShapeFor(stream, n), SoftCapParams{x, n, cap});
}

cudaError_t AddBias(const Stream& stream, Act y, const float* bias, int32_t n_rows, int32_t width) {
  const BiasParams params{y.data, bias, int64_t{n_rows} * width, width};
  return WithType(y.dtype, [&](auto type) {
    return Launch<&BiasKernel<decltype(type)>>(stream, ShapeFor(stream, params.n), params);
  });
}

cudaError_t Convert(const Stream& stream, ConstAct from, Act to, int64_t n) {
  // Rows of a matrix may begin anywhere.
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % sizeof(uint4) == 0;
  };
  const int64_t n_wide = is_aligned(from.data) && is_aligned(to.data) ? n / kWide : 0;
  const ConvertParams params{from.data, to.data, n, n_wide};
  const LaunchShape shape = ShapeFor(stream, std::max(n_wide, n - n_wide * kWide));
  return WithType(from.dtype, [&](auto source) {
    return WithType(to.dtype, [&](auto target) {
      return Launch<&ConvertKernel<decltype(source), decltype(target)>>(stream, shape, params);
    });
  });
}

}  // namespace stagecoach::kernels::cuda
