#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rope_append.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include "common/float_convert.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

// Writes k and v, [head_dim] each, of the token at `slot`.
template <DType kType>
void Append(const RopeAppendArgs& args, size_t slot, size_t kv_head, const float* k,
            const float* v) {
  const size_t head_dim = static_cast<size_t>(args.head_dim), token = slot % kBlock;
  const size_t start =
      KvBlockStart(slot / kBlock, kv_head, static_cast<size_t>(args.n_kv_heads), head_dim);
  for (size_t i = 0; i < head_dim; ++i) {
    StoreElement(args.kv.k, kType, start + KIndex(kType, token, i), k[i]);
  }
  for (size_t i = 0; i < head_dim; ++i) {
    StoreElement(args.kv.v, kType, start + VIndex(kType, token, i, head_dim), v[i]);
  }
}

void RopeAppendToken(const RopeAppendArgs& args, size_t t) {
  const size_t n_heads = static_cast<size_t>(args.n_heads);
  const size_t n_kv_heads = static_cast<size_t>(args.n_kv_heads);
  const size_t head_dim = static_cast<size_t>(args.head_dim);
  const size_t half = args.rope != nullptr ? static_cast<size_t>(args.rope->rotary_dim) / 2 : 0;
  float* const q = args.qkv.f32() + t * (n_heads + 2 * n_kv_heads) * head_dim;
  if (args.norms_all_heads) {
    const size_t q_width = n_heads * head_dim;
    NormRow(q, args.q_norm, nullptr, q_width, args.norm_kind, args.norm_eps, q, false);
    NormRow(q + q_width, args.k_norm, nullptr, n_kv_heads * head_dim, args.norm_kind, args.norm_eps,
            q + q_width, false);
  }
  for (size_t h = 0; h < n_heads + n_kv_heads; ++h) {
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
  const size_t slot = static_cast<size_t>(args.kv_slots[t]);
  const float* const k = q + n_heads * head_dim;
  const float* const v = k + n_kv_heads * head_dim;
  for (size_t h = 0; h < n_kv_heads; ++h) {
    const float *const k_head = k + h * head_dim, *const v_head = v + h * head_dim;
    switch (args.kv.dtype) {
      case DType::kF32:
        Append<DType::kF32>(args, slot, h, k_head, v_head);
        break;
      case DType::kBF16:
        Append<DType::kBF16>(args, slot, h, k_head, v_head);
        break;
      case DType::kF16:
        Append<DType::kF16>(args, slot, h, k_head, v_head);
        break;
    }
  }
}

absl::Status RopeAppend(const RopeAppendArgs& args, CpuContext& context) {
  const int32_t n_all = args.n_heads + 2 * args.n_kv_heads;
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
