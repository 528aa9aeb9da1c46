// Latent attention's own operations: products per head, and latents that go to the cache.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/latents.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "common/check.h"
#include "common/float_convert.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Rows of one head that a task multiplies: a multiple of every register block size.
inline constexpr size_t kHeadRows = 48;

template <DType kType>
void HeadGemmOf(const HeadGemmArgs& args, ThreadPool& pool) {
  const size_t n_rows = static_cast<size_t>(args.n_rows), n_heads = size_t(args.n_heads);
  const size_t k = static_cast<size_t>(args.w->cols);
  const size_t x_dim = static_cast<size_t>(args.x_dim), y_dim = static_cast<size_t>(args.y_dim);
  const size_t n_panels = static_cast<size_t>(args.w->rows) / n_heads / kPanelRows;
  const size_t panel_bytes = PanelBytes(k, kType);
  const size_t n_parts = (n_rows + kHeadRows - 1) / kHeadRows;
  pool.Run(n_heads * n_parts, [&](size_t task, int) HWY_ATTR {
    const size_t head = task / n_parts, first = task % n_parts * kHeadRows;
    const uint8_t* const of_head = args.w->buffer.As<uint8_t>() + head * n_panels * panel_bytes;
    const uint8_t* panels[kMaxPanelsAtOnce];
    for (size_t p = 0; p < n_panels; p += kMaxPanelsAtOnce) {
      const size_t n = std::min(kMaxPanelsAtOnce, n_panels - p);
      for (size_t i = 0; i < n; ++i) panels[i] = of_head + (p + i) * panel_bytes;
      MulPanels<kType>(std::min(kHeadRows, n_rows - first),
                       args.x.f32() + (first * n_heads + head) * x_dim, n_heads * x_dim, panels, n,
                       k, args.y.f32() + (first * n_heads + head) * y_dim + p * kPanelRows,
                       n_heads * y_dim, false);
    }
  });
}

absl::Status HeadGemm(const HeadGemmArgs& args, CpuContext& context) {
  SC_CHECK(args.w->parts.empty() && args.w->rows % (args.n_heads * kLatentMultiple) == 0);
  SC_CHECK(args.w->cols <= args.x_dim && args.w->rows / args.n_heads <= args.y_dim);
  switch (args.w->dtype) {
    case DType::kF32:
      HeadGemmOf<DType::kF32>(args, *context.pool);
      break;
    case DType::kBF16:
      HeadGemmOf<DType::kBF16>(args, *context.pool);
      break;
    case DType::kF16:
      HeadGemmOf<DType::kF16>(args, *context.pool);
      break;
    case DType::kFp8:
      SC_CHECK(false);  // only KV caches are
  }
  return absl::OkStatus();
}

// from, to: [rope->rotary_dim]; may be the same
void RotatePart(const LatentAppendArgs& args, size_t t, const float* from, float* to) {
  const size_t half = static_cast<size_t>(args.rope_dim) / 2;
  const size_t row = static_cast<size_t>(args.positions[t]) * half;
  const float* const cos = args.rope->cos + row;
  const float* const sin = args.rope->sin + row;
  for (size_t i = 0; i < half; ++i) {
    const size_t low = args.interleaved ? 2 * i : i, high = args.interleaved ? low + 1 : i + half;
    const float a = from[low], b = from[high];
    to[low] = a * cos[i] - b * sin[i];
    to[high] = b * cos[i] + a * sin[i];
  }
}

void AppendLatent(const LatentAppendArgs& args, size_t t) {
  const size_t rank = static_cast<size_t>(args.kv_rank), rope = size_t(args.rope_dim);
  const size_t n_heads = static_cast<size_t>(args.n_heads), dim = rank + rope;
  const size_t q_dim = static_cast<size_t>(args.nope_dim) + rope;
  for (size_t head = t * n_heads; head < (t + 1) * n_heads; ++head) {
    RotatePart(args, t, args.q.f32() + (head + 1) * q_dim - rope,
               args.queries.f32() + (head + 1) * dim - rope);
  }
  const float factor = args.query_scaling.At(args.positions[t]);
  if (factor != 1) {
    float* const queries = args.queries.f32() + t * n_heads * dim;
    for (size_t i = 0; i < n_heads * dim; ++i) queries[i] *= factor;
  }
  float* const latent = args.latents + t * dim;
  NormRow(latent, args.norm, nullptr, rank, NormKind::kRms, args.norm_eps, latent, false);
  RotatePart(args, t, latent + rank, latent + rank);
  const size_t slot = static_cast<size_t>(args.kv_slots[t]);
  uint8_t* const block =
      static_cast<uint8_t*>(args.kv.k) + KvHeadStart(args.kv.dtype, slot / kBlock, 0, 1, dim);
  for (size_t i = 0; i < dim; ++i) {
    StoreElement(block, args.kv.dtype, KIndex(args.kv.dtype, slot % kBlock, i), latent[i]);
  }
}

absl::Status LatentAppend(const LatentAppendArgs& args, CpuContext& context) {
  SC_CHECK(args.kv.dtype != DType::kFp8);  // rows of latents have no scales
  SC_CHECK(args.kv.v == nullptr && args.rope->rotary_dim == args.rope_dim);
  RunPieces(*context.pool, static_cast<size_t>(args.n_tokens),
            static_cast<size_t>(args.n_heads * args.rope_dim + args.kv_rank),
            [&](size_t begin, size_t end) {
              for (size_t t = begin; t < end; ++t) AppendLatent(args, t);
            });
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(HeadGemm);
HWY_EXPORT(LatentAppend);

CpuKernel<HeadGemmArgs> ChooseHeadGemm() { return &HWY_DYNAMIC_DISPATCH(HeadGemm); }
CpuKernel<LatentAppendArgs> ChooseLatentAppend() { return &HWY_DYNAMIC_DISPATCH(LatentAppend); }

}  // namespace stagecoach::kernels
#endif
