#include "kernels/cuda/fp8/fp8_rows.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/fp8/fp8_codes.h"
#include "kernels/cuda/fp8/fp8_quantize.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kFp8Warps = kThreads / kWarpThreads;
constexpr int kPiece = 16;  // codes that a thread takes at once

LaunchShape ShapeFor(int64_t n_items) {
  return {.grid = dim3(static_cast<unsigned>(CeilDiv(n_items, kThreads))), .block = kThreads};
}
__device__ __forceinline__ int64_t Item() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

struct PackFp8Params {
  Fp8Part part;
  const unsigned char* rows;
  int64_t row_bytes;
  int32_t first_row, n_rows;
};

// A thread takes kPiece codes, and a row's scale with its first ones. It never calls
// LetNextStart(): the next kernel may read the weights at once.
__global__ void PackFp8Kernel(const PackFp8Params p) {
  WaitForPrevious();
  const Fp8Part& part = p.part;
  const int64_t item = Item();
  const int n_pieces = part.cols / kPiece;
  const int64_t n = item / n_pieces;
  if (n >= p.n_rows) return;
  const int piece = static_cast<int>(item % n_pieces);
  const int64_t row = p.first_row + n;
  const unsigned char* const scale = p.rows + n * p.row_bytes;
  const unsigned char* const codes = scale + sizeof(float) + piece * kPiece;
  Values<unsigned char, kPiece> sixteen;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) sixteen.at[i] = codes[Fp8Place(i)];
  *reinterpret_cast<Values<unsigned char, kPiece>*>(part.codes + row * part.cols + piece * kPiece) =
      sixteen;
  if (piece != 0) return;
  uint32_t bits = 0;  // the source is not aligned
  for (unsigned i = 0; i < sizeof(float); ++i) bits |= static_cast<uint32_t>(scale[i]) << (8 * i);
  part.scales[row] = __uint_as_float(bits);
}

// kPiece values of a row from input `first` on, as common/encoding/rows.h decodes them.
__device__ __forceinline__ void Fp8Values(const Fp8Part& part, int row, int first,
                                          float (&values)[kPiece]) {
  const float scale = part.scales[row];
  const uint4 codes =
      *reinterpret_cast<const uint4*>(part.codes + int64_t{row} * part.cols + first);
  const uint32_t words[4] = {codes.x, codes.y, codes.z, codes.w};
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    const int at = Fp8Place(i);
    values[i] = RoundedProduct(scale, FloatOfFp8(words[at / 4] >> (at % 4 * 8) & 0xffu));
  }
}

struct ExpandFp8Params {
  Fp8Part part;
  void* to;
};

// It never calls LetNextStart(): the next kernel may read the values as it does weights.
template <typename T>
__global__ void ExpandFp8Kernel(const ExpandFp8Params p) {
  WaitForPrevious();
  const int64_t item = Item();
  const int n_pieces = p.part.cols / kPiece;
  const int64_t row = item / n_pieces;
  if (row >= p.part.rows) return;
  float values[kPiece];
  const int first = static_cast<int>(item % n_pieces) * kPiece;
  Fp8Values(p.part, static_cast<int>(row), first, values);
  StoreFloats<kPiece>(values, static_cast<T*>(p.to) + row * p.part.cols + first);
}

// One warp per row and output.
__global__ void __launch_bounds__(kThreads) PlainFp8Kernel(const Fp8Product p) {
  LetNextStart();
  WaitForPrevious();
  const int lane = threadIdx.x % kWarpThreads;
  const int output = static_cast<int>(blockIdx.x) * kFp8Warps + threadIdx.x / kWarpThreads;
  const auto row = static_cast<int64_t>(blockIdx.y);
  if (output >= p.w.rows) return;
  const float* const x = static_cast<const float*>(p.x.data) + row * p.w.cols;
  float sum = 0;
  for (int first = lane * kPiece; first < p.w.cols; first += kWarpThreads * kPiece) {
    float values[kPiece];
    Fp8Values(p.w, output, first, values);
#pragma unroll
    for (int i = 0; i < kPiece; ++i) sum += x[first + i] * values[i];
  }
  sum = WarpSum(sum);
  if (lane != 0) return;
  float* const y = static_cast<float*>(p.y.data) + row * p.y_stride + output;
  if (p.bias != nullptr) sum += p.bias[output];
  *y = p.add_to_y ? *y + sum : sum;
}

template <typename O>
__global__ void EmbedFp8Kernel(const Fp8Embed p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t item = Item();
  const int n_pieces = p.table.cols / kPiece;
  const int64_t token = item / n_pieces;
  if (token >= p.n_tokens) return;
  const int row = p.ids[token] - p.first_row;
  if (row < 0 || row >= p.table.rows) return;
  float values[kPiece];
  const int first = static_cast<int>(item % n_pieces) * kPiece;
  Fp8Values(p.table, row, first, values);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) values[i] *= p.scale;
  StoreFloats<kPiece>(values, static_cast<O*>(p.out.data) + token * p.table.cols + first);
}

struct QuantizeParams {
  const void* x;
  Fp8Inputs out;
  int32_t cols;
};

constexpr int kWide = 8;  // inputs of a load
constexpr int kMostQuantizeThreads = 1024;

// One CTA per row, which stays in registers: kItems pieces of kWide inputs per thread.
template <typename T, int kItems>
__global__ void __launch_bounds__(kMostQuantizeThreads) QuantizeKernel(const QuantizeParams p) {
  __shared__ float shared[kWarpThreads];
  LetNextStart();
  WaitForPrevious();
  const auto element = [](int item) {
    return (item * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kWide;
  };
  const T* const x = static_cast<const T*>(p.x) + int64_t{blockIdx.x} * p.cols;
  uint4 loaded[kItems];
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    loaded[item] = uint4{};
    if (element(item) < p.cols) loaded[item] = *reinterpret_cast<const uint4*>(x + element(item));
  }
  const auto value = [&loaded](int item, int i) {
    const uint4& four = loaded[item];
    const uint32_t pair = i < 2 ? four.x : i < 4 ? four.y : i < 6 ? four.z : four.w;
    return ToFloat(T{static_cast<uint16_t>(pair >> (i % 2 * 16))});
  };
  float largest = 0;
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
#pragma unroll
    for (int i = 0; i < kWide; ++i) largest = fmaxf(largest, fabsf(value(item, i)));
  }
  largest = BlockMax(largest, shared);
  const float factor = Fp8Factor(largest);
#pragma unroll
  for (int item = 0; item < kItems; ++item) {
    if (element(item) >= p.cols) continue;
    uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float inputs[4] = {value(item, 4 * i) * factor, value(item, 4 * i + 1) * factor,
                               value(item, 4 * i + 2) * factor, value(item, 4 * i + 3) * factor};
      words[i] = Fp8InputWord(inputs);
    }
    *reinterpret_cast<uint2*>(p.out.codes + int64_t{blockIdx.x} * p.cols + element(item)) =
        make_uint2(words[0], words[1]);
  }
  if (threadIdx.x == 0) p.out.scales[blockIdx.x] = Fp8Scale(largest);
}

template <typename T>
cudaError_t Quantize(const Stream& stream, int32_t n_rows, const QuantizeParams& params) {
  const int64_t n_pieces = params.cols / kWide;
  const auto launch = [&]<int kItems>() {
    const auto threads = CeilDiv(CeilDiv(n_pieces, kItems), kWarpThreads) * kWarpThreads;
    return Launch<&QuantizeKernel<T, kItems>>(
        stream,
        {.grid = dim3(static_cast<unsigned>(n_rows)), .block = static_cast<unsigned>(threads)},
        params);
  };
  if (n_pieces <= 512) return launch.template operator()<1>();
  if (n_pieces <= 2048) return launch.template operator()<4>();
  SC_CHECK(n_pieces <= int64_t{8} * kMostQuantizeThreads);
  return launch.template operator()<8>();
}

}  // namespace

cudaError_t PackFp8Rows(const Stream& stream, const Fp8Part& part, int32_t first_row,
                        int32_t n_rows, const void* rows) {
  const PackFp8Params params{.part = part,
                             .rows = static_cast<const unsigned char*>(rows),
                             .row_bytes = int64_t{part.cols} + static_cast<int64_t>(sizeof(float)),
                             .first_row = first_row,
                             .n_rows = n_rows};
  return Launch<&PackFp8Kernel>(stream, ShapeFor(int64_t{n_rows} * (part.cols / kPiece)), params);
}

cudaError_t ExpandFp8Rows(const Stream& stream, const Fp8Part& part, DType dtype, void* to) {
  SC_CHECK(dtype != DType::kF32);
  const LaunchShape shape = ShapeFor(int64_t{part.rows} * (part.cols / kPiece));
  const ExpandFp8Params params{.part = part, .to = to};
  return dtype == DType::kBF16 ? Launch<&ExpandFp8Kernel<BF16>>(stream, shape, params)
                               : Launch<&ExpandFp8Kernel<F16>>(stream, shape, params);
}

cudaError_t PlainFp8Product(const Stream& stream, const Fp8Product& product) {
  SC_CHECK(product.x.dtype == DType::kF32 && product.y.dtype == DType::kF32);
  return Launch<&PlainFp8Kernel>(
      stream,
      {.grid = dim3(static_cast<unsigned>(CeilDiv(product.w.rows, kFp8Warps)),
                    static_cast<unsigned>(product.n_rows)),
       .block = kThreads},
      product);
}

cudaError_t EmbedFp8Rows(const Stream& stream, const Fp8Embed& args) {
  const LaunchShape shape = ShapeFor(int64_t{args.n_tokens} * (args.table.cols / kPiece));
  return WithType(args.out.dtype, [&](auto type) {
    return Launch<&EmbedFp8Kernel<decltype(type)>>(stream, shape, args);
  });
}

cudaError_t QuantizeFp8Rows(const Stream& stream, ConstAct x, int32_t n_rows, int32_t cols,
                            const Fp8Inputs& out) {
  SC_CHECK(x.dtype != DType::kF32);
  const QuantizeParams params{.x = x.data, .out = out, .cols = cols};
  return x.dtype == DType::kBF16 ? Quantize<BF16>(stream, n_rows, params)
                                 : Quantize<F16>(stream, n_rows, params);
}

}  // namespace stagecoach::kernels::cuda
