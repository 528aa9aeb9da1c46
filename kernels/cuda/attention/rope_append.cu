#include "kernels/cuda/attention/rope_append.h"

#include "common/check.h"
#include "kernels/cuda/attention/fp8_rows.h"
#include "kernels/cuda/attention/kv_rows.h"
#include "kernels/cuda/attention/norm_all_heads.h"
#include "kernels/cuda/attention/query_scale.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/warp.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kMaxHeadDim = 512;
constexpr int kWarpsPerBlock = 8;
constexpr int kVector = 8;  // WideRopeKernel: elements of each half per lane
constexpr int kWideThreads = 128;

struct RopeParams {
  void* qkv;
  const int32_t *positions, *kv_slots;
  const float *cos, *sin;  // null: no rotation
  const float *q_norm, *k_norm;
  void *k, *v;
  KvSides sides;
  int64_t n_items;  // tokens * heads
  int32_t n_heads, n_kv_heads, head_dim, rotary_dim;
  NormKind norm_kind;
  float norm_eps;
  QueryScaling query_scaling;
  bool norms_v;
  // A row's heads: queries, keys, values. Values may have no place of their own in a row, and a row
  // may have queries only.
  int32_t n_all, n_in_row;

  // The head's place in the row.
  __device__ int Place(int head) const { return head < n_in_row ? head : head - n_kv_heads; }
};

// A part of a head in a warp's registers. Piece i of a lane starts at element (i * 32 + lane) * kN.
template <typename T, int kN, int kMaxElements>
struct Head {
  static constexpr int kPieces = kMaxElements / (kWarpThreads * kN);
  float x[kPieces][kN];

  __device__ static int Element(int piece) {
    return (piece * kWarpThreads + static_cast<int>(threadIdx.x) % kWarpThreads) * kN;
  }

  __device__ void Load(const T* from, int first, int n) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Element(i) < n) LoadFloats<kN>(from + first + Element(i), x[i]);
    }
  }
  __device__ void Store(T* to, int first, int n) const {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Element(i) < n) StoreFloats<kN>(x[i], to + first + Element(i));
    }
  }
  template <typename Each>
  __device__ void ForEach(int n, const Each& each) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      if (Element(i) >= n) continue;
#pragma unroll
      for (int e = 0; e < kN; ++e) each(i, e, Element(i) + e);
    }
  }
};

// LayerNorm or RMS norm over the parts of a head: [0, half), [half, 2 half), [2 half, head_dim).
// weight: null: ones
template <typename H>
__device__ void NormParts(H (&parts)[3], const int (&sizes)[3], const int (&firsts)[3],
                          const float* weight, const RopeParams& p) {
  float sum = 0, square = 0;
  if (p.norm_kind == NormKind::kLayerNorm) {
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      parts[part].ForEach(sizes[part], [&](int i, int e, int) { sum += parts[part].x[i][e]; });
    }
    sum = WarpSum(sum);
  }
  const float mean = sum / static_cast<float>(p.head_dim);
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    parts[part].ForEach(sizes[part], [&](int i, int e, int) {
      const float x = parts[part].x[i][e] - mean;
      square += x * x;
    });
  }
  const float variance = WarpSum(square) / static_cast<float>(p.head_dim);
  const float scale = 1.0f / sqrtf(variance + p.norm_eps);
  const float weight_offset = p.norm_kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f;
#pragma unroll
  for (int part = 0; part < 3; ++part) {
    parts[part].ForEach(sizes[part], [&](int i, int e, int at) {
      float& x = parts[part].x[i][e];
      const float w = weight != nullptr ? weight[firsts[part] + at] + weight_offset : 1.0f;
      x = (x - mean) * scale * w;
    });
  }
}

// The address of a head's row in the cache.
template <typename T>
__device__ __forceinline__ T* CacheRow(const RopeParams& p, bool is_v, int32_t slot, int kv_head) {
  const int32_t row = CacheRowOf(p.sides, is_v ? p.sides.v : p.sides.k,
                                 slot / kBlockTokens * p.n_kv_heads + kv_head);
  return static_cast<T*>(is_v ? p.v : p.k) +
         (int64_t{row} * kBlockTokens + slot % kBlockTokens) * p.head_dim;
}

// A head's row in an FP8 cache.
struct Fp8Place {
  unsigned char* codes;
  uint16_t* scale;

  __device__ __forceinline__ static Fp8Place Of(const RopeParams& p, bool is_v, int32_t slot,
                                                int kv_head) {
    const int64_t head = int64_t{slot / kBlockTokens} * p.n_kv_heads + kv_head;
    unsigned char* const at = static_cast<unsigned char*>(is_v ? p.v : p.k) +
                              head * static_cast<int64_t>(KvFp8HeadBytes(p.head_dim));
    const int row = slot % kBlockTokens;
    return {at + row * p.head_dim,
            reinterpret_cast<uint16_t*>(at + KvFp8CodeBytes(p.head_dim)) + row};
  }
};

// Sum over the kLanes lanes of a head.
template <int kLanes>
__device__ __forceinline__ float HeadSum(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, mask);
  }
  return value;
}

template <int kLanes>
__device__ __forceinline__ float HeadMax(float value) {
#pragma unroll
  for (int mask = kLanes / 2; mask > 0; mask /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, mask));
  }
  return value;
}

// A lane's part of a fully rotated head: one vector of each half.
struct HeadPart {
  float low[kVector], high[kVector];

  // LayerNorm or RMS norm. norm: the lane's weights; null: ones. If not is_normed, the lane only
  // takes part in the shuffles.
  template <int kLanes>
  __device__ __forceinline__ void Norm(bool is_normed, const float* norm, const RopeParams& p) {
    constexpr int kHalf = kLanes * kVector;
    float mean = 0, square = 0;
    if (p.norm_kind == NormKind::kLayerNorm) {
#pragma unroll
      for (int e = 0; e < kVector; ++e) mean += low[e] + high[e];
      mean = HeadSum<kLanes>(mean) / static_cast<float>(2 * kHalf);
    }
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const float a = low[e] - mean, b = high[e] - mean;
      square += a * a + b * b;
    }
    const float variance = HeadSum<kLanes>(square) / static_cast<float>(2 * kHalf);
    if (!is_normed) return;
    const float scale = 1.0f / sqrtf(variance + p.norm_eps);
    const float offset = p.norm_kind == NormKind::kRmsPlusOne ? 1.0f : 0.0f;
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      low[e] = (low[e] - mean) * scale * (norm != nullptr ? norm[e] + offset : 1.0f);
      high[e] = (high[e] - mean) * scale * (norm != nullptr ? norm[kHalf + e] + offset : 1.0f);
    }
  }
  __device__ __forceinline__ void Rotate(const float (&cos)[kVector], const float (&sin)[kVector]) {
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      const float a = low[e], b = high[e];
      low[e] = a * cos[e] - b * sin[e];
      high[e] = b * cos[e] + a * sin[e];
    }
  }
  __device__ __forceinline__ void Multiply(float factor) {
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      low[e] *= factor;
      high[e] *= factor;
    }
  }
  __device__ __forceinline__ float Largest() const {
    float largest = 0;
#pragma unroll
    for (int e = 0; e < kVector; ++e) {
      largest = fmaxf(largest, fmaxf(fabsf(low[e]), fabsf(high[e])));
    }
    return largest;
  }
  // to: the lane's part of the row
  __device__ __forceinline__ static void StoreCodes(const float (&from)[kVector],
                                                    unsigned char* to) {
    const float first[4] = {from[0], from[1], from[2], from[3]};
    const float second[4] = {from[4], from[5], from[6], from[7]};
    *reinterpret_cast<uint2*>(to) = make_uint2(Fp8InputWord(first), Fp8InputWord(second));
  }
};

// For fully rotated heads: kLanes lanes per head, one CTA per token. A lane uses the same angles
// for every head, and several heads are in flight at once. Angles are loaded while the previous
// kernel runs, because with one token nothing else hides their latency.
template <typename T, int kLanes, bool kToFp8>
__global__ void __launch_bounds__(kWideThreads) WideRopeKernel(const RopeParams p) {
  constexpr int kHeads = kWideThreads / kLanes;  // at a time
  constexpr int kAhead = 3;
  constexpr int kHalf = kLanes * kVector, kDim = 2 * kHalf;
  LetNextStart();
  const int64_t token = blockIdx.x;
  const int first = static_cast<int>(threadIdx.x) / kLanes;
  const int of_lane = static_cast<int>(threadIdx.x) % kLanes * kVector;
  T* const row = static_cast<T*>(p.qkv) + token * p.n_in_row * kDim + of_lane;
  const int32_t slot = LoadPlan(p.kv_slots + token), position = LoadPlan(p.positions + token);
  const int n_kept = slot < 0 ? p.n_heads : p.n_all;  // padding writes nothing to the cache
  const bool has_norms = p.q_norm != nullptr || p.k_norm != nullptr || p.norms_v;
  float cos[kVector], sin[kVector];
  const int64_t angles = int64_t{position} * kHalf + of_lane;
  LoadFloats<kVector>(p.cos + angles, cos);
  LoadFloats<kVector>(p.sin + angles, sin);
  const float query_scale = QueryScale(p.query_scaling, position);
  WaitForPrevious();

  for (int begin = 0; begin < n_kept; begin += kAhead * kHeads) {
    HeadPart parts[kAhead] = {};
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int head = begin + i * kHeads + first;
      if (head >= n_kept) continue;
      const T* const from = row + int64_t{p.Place(head)} * kDim;
      LoadFloats<kVector>(from, parts[i].low);
      LoadFloats<kVector>(from + kHalf, parts[i].high);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const int head = begin + i * kHeads + first;
      const bool is_q = head < p.n_heads;
      const bool is_v = head >= p.n_heads + p.n_kv_heads;
      if (has_norms) {
        const float* const norm = is_q ? p.q_norm : is_v ? nullptr : p.k_norm;
        parts[i].template Norm<kLanes>(norm != nullptr || (is_v && p.norms_v),
                                       norm != nullptr ? norm + of_lane : nullptr, p);
      }
      if (!is_v) parts[i].Rotate(cos, sin);
      const float largest = kToFp8 ? HeadMax<kLanes>(parts[i].Largest()) : 0;
      if (head >= n_kept) continue;
      if (is_q) parts[i].Multiply(query_scale);
      const int kv_head = is_v ? head - p.n_heads - p.n_kv_heads : head - p.n_heads;
      if (kToFp8 && !is_q) {
        const Fp8Place place = Fp8Place::Of(p, is_v, slot, kv_head);
        const int32_t exponent = KvFp8Exponent(largest);
        parts[i].Multiply(PowerOfTwo(-exponent));
        const auto store = [&](const float(&from)[kVector], int element) {
          HeadPart::StoreCodes(from, place.codes + KvFp8Place8(element / 8, kDim, is_v));
        };
        store(parts[i].low, of_lane);
        store(parts[i].high, kHalf + of_lane);
        if (of_lane == 0) *place.scale = KvFp8ScaleBits(exponent);
        continue;
      }
      T* to = row + int64_t{head} * kDim;
      if (!is_q) to = CacheRow<T>(p, is_v, slot, kv_head) + of_lane;
      StoreFloats<kVector>(parts[i].low, to);
      StoreFloats<kVector>(parts[i].high, to + kHalf);
    }
  }
}

template <typename T, bool kToFp8>
cudaError_t LaunchWide(const Stream& stream, const RopeParams& params, int32_t n_tokens) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(n_tokens)), .block = kWideThreads};
  switch (params.head_dim) {
    case 64:
      return Launch<&WideRopeKernel<T, 4, kToFp8>>(stream, shape, params);
    case 128:
      return Launch<&WideRopeKernel<T, 8, kToFp8>>(stream, shape, params);
    default:
      return Launch<&WideRopeKernel<T, 16, kToFp8>>(stream, shape, params);
  }
}

// Whether WideRopeKernel supports this case.
bool IsWide(const RopeParams& p) {
  return p.cos != nullptr && p.rotary_dim == p.head_dim &&
         (p.head_dim == 64 || p.head_dim == 128 || p.head_dim == 256);
}

template <typename T, int kN, int kMaxElements, bool kToFp8>
__global__ void __launch_bounds__(kWarpsPerBlock* kWarpThreads) RopeKernel(const RopeParams p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t item = int64_t{blockIdx.x} * kWarpsPerBlock + threadIdx.x / kWarpThreads;
  if (item >= p.n_items) return;
  const int64_t token = item / p.n_all;
  const int head = static_cast<int>(item % p.n_all);
  const bool is_q = head < p.n_heads;
  const bool is_v = head >= p.n_heads + p.n_kv_heads;
  const float* const norm = is_q ? p.q_norm : is_v ? nullptr : p.k_norm;
  const float query_scale = is_q ? QueryScale(p.query_scaling, p.positions[token]) : 1.0f;
  if (is_q && norm == nullptr && p.cos == nullptr && query_scale == 1) return;
  const int32_t slot = p.kv_slots[token];
  if (!is_q && slot < 0) return;

  T* const at = static_cast<T*>(p.qkv) + (token * p.n_in_row + p.Place(head)) * p.head_dim;
  const int half = p.rotary_dim / 2;
  const int sizes[3] = {half, half, p.head_dim - p.rotary_dim};
  const int firsts[3] = {0, half, p.rotary_dim};
  Head<T, kN, kMaxElements> parts[3];
#pragma unroll
  for (int part = 0; part < 3; ++part) parts[part].Load(at, firsts[part], sizes[part]);
  if (norm != nullptr || (is_v && p.norms_v)) NormParts(parts, sizes, firsts, norm, p);
  if (p.cos != nullptr && !is_v) {
    const int64_t row = int64_t{p.positions[token]} * half;
    parts[0].ForEach(half, [&](int i, int e, int element) {
      const float cos = p.cos[row + element], sin = p.sin[row + element];
      const float a = parts[0].x[i][e], b = parts[1].x[i][e];
      parts[0].x[i][e] = a * cos - b * sin;
      parts[1].x[i][e] = b * cos + a * sin;
    });
  }
  if (is_q) {
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      parts[part].ForEach(sizes[part],
                          [&](int i, int e, int) { parts[part].x[i][e] *= query_scale; });
    }
  }
  const int kv_head = is_v ? head - p.n_heads - p.n_kv_heads : head - p.n_heads;
  if (kToFp8 && !is_q) {
    const Fp8Place place = Fp8Place::Of(p, is_v, slot, kv_head);
    float largest = 0;
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      parts[part].ForEach(sizes[part], [&](int i, int e, int) {
        largest = fmaxf(largest, fabsf(parts[part].x[i][e]));
      });
    }
    const int32_t exponent = KvFp8Exponent(WarpMax(largest));
    const float inverse = PowerOfTwo(-exponent);
#pragma unroll
    for (int part = 0; part < 3; ++part) {
      parts[part].ForEach(sizes[part], [&](int i, int e, int element) {
        place.codes[KvFp8Place(firsts[part] + element, p.head_dim, is_v)] =
            static_cast<unsigned char>(Fp8OfFloat(parts[part].x[i][e] * inverse));
      });
    }
    if (threadIdx.x % kWarpThreads == 0) *place.scale = KvFp8ScaleBits(exponent);
    return;
  }
  T* const to = is_q ? at : CacheRow<T>(p, is_v, slot, kv_head);
#pragma unroll
  for (int part = 0; part < 3; ++part) parts[part].Store(to, firsts[part], sizes[part]);
}

}  // namespace

cudaError_t RopeAppend(const Stream& stream, const RopeAppendArgs& args, const KvSides& sides) {
  const bool to_fp8 = args.kv.dtype == DType::kFp8;
  SC_CHECK(to_fp8 ? args.head_dim % 4 == 0 : args.qkv.dtype == args.kv.dtype);
  SC_CHECK(args.head_dim <= kMaxHeadDim);
  SC_CHECK(!args.norms_all_heads || args.kv_of_row == KvOfRow::kKeysAndValues);
  SC_CHECK(!args.norms_v || args.norm_kind == NormKind::kRms);
  const RopeTable* const rope = args.rope;
  const int32_t n_all = args.n_heads + NCachedVectors(args.kv_of_row) * args.n_kv_heads;
  // Without rotation, the head is still processed in halves.
  const int32_t rotary_dim = rope != nullptr ? rope->rotary_dim : args.head_dim / 2 * 2;
  RopeParams params{.qkv = args.qkv.data,
                    .positions = args.positions,
                    .kv_slots = args.kv_slots,
                    .cos = rope != nullptr ? rope->cos : nullptr,
                    .sin = rope != nullptr ? rope->sin : nullptr,
                    .q_norm = args.norms_all_heads ? nullptr : args.q_norm,
                    .k_norm = args.norms_all_heads ? nullptr : args.k_norm,
                    .k = args.kv.k,
                    .v = args.kv.v,
                    .sides = sides,
                    .n_items = int64_t{args.n_tokens} * n_all,
                    .n_heads = args.n_heads,
                    .n_kv_heads = args.n_kv_heads,
                    .head_dim = args.head_dim,
                    .rotary_dim = rotary_dim,
                    .norm_kind = args.norm_kind,
                    .norm_eps = args.norm_eps,
                    .query_scaling = args.query_scaling,
                    .norms_v = args.norms_v,
                    .n_all = n_all,
                    .n_in_row = args.n_heads + NKvVectors(args.kv_of_row) * args.n_kv_heads};
  if (args.norms_all_heads) {
    const cudaError_t error = NormAllHeads(stream, args);
    if (error != cudaSuccess) return error;
  }
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(CeilDiv(params.n_items, kWarpsPerBlock))),
      .block = kWarpsPerBlock * kWarpThreads};
  const bool by_two = rotary_dim % 4 == 0 && args.head_dim % 2 == 0;
  return WithType(args.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    const auto launch = [&]<bool kToFp8>() {
      if (IsWide(params)) return LaunchWide<T, kToFp8>(stream, params, args.n_tokens);
      if (!by_two) return Launch<&RopeKernel<T, 1, kMaxHeadDim, kToFp8>>(stream, shape, params);
      return args.head_dim <= 128
                 ? Launch<&RopeKernel<T, 2, 128, kToFp8>>(stream, shape, params)
                 : Launch<&RopeKernel<T, 2, kMaxHeadDim, kToFp8>>(stream, shape, params);
    };
    return to_fp8 ? launch.template operator()<true>() : launch.template operator()<false>();
  });
}

}  // namespace stagecoach::kernels::cuda
