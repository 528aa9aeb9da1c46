#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope_append.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <cstring>
#include <type_traits>

#include "common/float_convert.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/kv_fp8_row.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kMaxHeadDim = 512;  // as RopeAppendArgs says

// head: [2 * half]; cos, sin: [half]
template <size_t kLanes>
HWY_INLINE size_t Rotate(float* head, const float* cos, const float* sin, size_t i, size_t half) {
  const hn::CappedTag<float, kLanes> d;
  for (; i + hn::Lanes(d) <= half; i += hn::Lanes(d)) {
    const auto a = hn::LoadU(d, head + i), b = hn::LoadU(d, head + half + i);
    const auto c = hn::LoadU(d, cos + i), s = hn::LoadU(d, sin + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, head + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, head + half + i);
  }
  return i;
}

// Writes keys or values of the token at `slot`. row: [head_dim]
template <DType kType, bool kIsV>
void AppendRow(const RopeAppendArgs& args, size_t slot, size_t kv_head, const float* row) {
  const size_t head_dim = static_cast<size_t>(args.head_dim), token = slot % kBlock;
  uint8_t* const head =
      static_cast<uint8_t*>(kIsV ? args.kv.v : args.kv.k) +
      KvHeadStart(kType, slot / kBlock, kv_head, static_cast<size_t>(args.n_kv_heads), head_dim);
  const auto index = [&](size_t i) {
    return kIsV ? VIndex(kType, token, i, head_dim) : KIndex(kType, token, i);
  };
  if constexpr (kType == DType::kFp8) {
    uint8_t codes[kMaxHeadDim];
    const uint16_t scale = EncodeKvFp8Row({row, head_dim}, codes);
    for (size_t i = 0; i < head_dim; ++i) head[index(i)] = codes[i];
    std::memcpy(head + KvFp8CodeBytes(head_dim) + token * sizeof(scale), &scale, sizeof(scale));
  } else {
    for (size_t i = 0; i < head_dim; ++i) StoreElement(head, kType, index(i), row[i]);
  }
}

// Calls append(dtype) with the cache's dtype as a constant.
template <typename F>
void WithCacheType(DType dtype, const F& append) {
  switch (dtype) {
    case DType::kF32:
      return append(std::integral_constant<DType, DType::kF32>());
    case DType::kBF16:
      return append(std::integral_constant<DType, DType::kBF16>());
    case DType::kF16:
      return append(std::integral_constant<DType, DType::kF16>());
    case DType::kFp8:
      return append(std::integral_constant<DType, DType::kFp8>());
  }
}

// Before the norm and the rotation of keys, which may be the values. k: [n_kv_heads, head_dim]
void AppendValues(const RopeAppendArgs& args, size_t slot, const float* k) {
  const size_t n_kv_heads = static_cast<size_t>(args.n_kv_heads);
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  const float* const v = args.kv_of_row == KvOfRow::kKeysAsValues ? k : k + n_kv_heads * head_dim;
  float normed[kMaxHeadDim];
  for (size_t h = 0; h < n_kv_heads; ++h) {
    const float* head = v + h * head_dim;
    if (args.norms_v) {
      NormRow(head, nullptr, nullptr, head_dim, NormKind::kRms, args.norm_eps, normed, false);
      head = normed;
    }
    WithCacheType(args.kv.dtype, [&](auto dtype) {
      AppendRow<decltype(dtype)::value, /*kIsV=*/true>(args, slot, h, head);
    });
  }
}

void RopeAppendToken(const RopeAppendArgs& args, size_t t) {
  const size_t n_heads = static_cast<size_t>(args.n_heads);
  const size_t n_kv_heads = static_cast<size_t>(args.n_kv_heads);
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  const size_t half = args.rope != nullptr ? static_cast<size_t>(args.rope->rotary_dim) / 2 : 0;
  const size_t n_kv_vectors = static_cast<size_t>(NKvVectors(args.kv_of_row));
  const bool has_kv = n_kv_vectors > 0;
  float* const q = args.qkv.f32() + t * (n_heads + n_kv_vectors * n_kv_heads) * head_dim;
  float* const k = q + n_heads * head_dim;
  const size_t slot = has_kv ? static_cast<size_t>(args.kv_slots[t]) : 0;
  if (has_kv) AppendValues(args, slot, k);
  if (args.norms_all_heads) {
    const size_t q_width = n_heads * head_dim;
    NormRow(q, args.q_norm, nullptr, q_width, args.norm_kind, args.norm_eps, q, false);
    NormRow(q + q_width, args.k_norm, nullptr, n_kv_heads * head_dim, args.norm_kind, args.norm_eps,
            q + q_width, false);
  }
  for (size_t h = 0; h < n_heads + (has_kv ? n_kv_heads : 0); ++h) {
    float* const head = q + h * head_dim;
    const float* const norm = h < n_heads ? args.q_norm : args.k_norm;
    if (norm != nullptr && !args.norms_all_heads) {
      NormRow(head, norm, nullptr, head_dim, args.norm_kind, args.norm_eps, head, false);
    }
    if (args.rope != nullptr) {
      const size_t row = static_cast<size_t>(args.positions[t]) * half;
      const float* const cos = args.rope->cos + row;
      const float* const sin = args.rope->sin + row;
      Rotate<1>(head, cos, sin, Rotate<16>(head, cos, sin, 0, half), half);
    }
  }
  const float scale = args.query_scaling.At(args.positions[t]);
  if (scale != 1) {
    for (size_t i = 0; i < n_heads * head_dim; ++i) q[i] *= scale;
  }
  if (!has_kv) return;
  for (size_t h = 0; h < n_kv_heads; ++h) {
    WithCacheType(args.kv.dtype, [&](auto dtype) {
      AppendRow<decltype(dtype)::value, /*kIsV=*/false>(args, slot, h, k + h * head_dim);
    });
  }
}

absl::Status RopeAppend(const RopeAppendArgs& args, CpuContext& context) {
  SC_CHECK(static_cast<size_t>(args.head_dim) <= kMaxHeadDim);
  const int32_t n_all = args.n_heads + NKvVectors(args.kv_of_row) * args.n_kv_heads;
  RunPieces(*context.pool, static_cast<size_t>(args.n_tokens),
            static_cast<size_t>(n_all * args.head_dim), [&](size_t begin, size_t end) {
              for (size_t t = begin; t < end; ++t) RopeAppendToken(args, t);
            });
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(RopeAppend);

CpuKernel<RopeAppendArgs> ChooseRopeAppend() { return &HWY_DYNAMIC_DISPATCH(RopeAppend); }

}  // namespace stagecoach::kernels
#endif
