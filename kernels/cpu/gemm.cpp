// y = x w^T over packed panels, plain floats or quantized. Few rows: memory-bound, every panel is
// read once, straight from memory. Many rows: compute-bound, see gemm_blocks-inl.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "common/status.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/gemm_blocks-inl.h"
#include "kernels/cpu/gemm_finish-inl.h"
#include "kernels/cpu/matrix_parts.h"
#include "kernels/cpu/quant-inl.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Calls run(first panel, end) on all threads, for tasks of 64 KiB or more, a multiple of `group`
// panels, several a thread, so that a slow thread takes fewer.
template <typename F>
void RunFewRows(const GemmSpan& span, size_t group, ThreadPool& pool, const F& run) {
  const size_t least = std::max<size_t>(1, (size_t{64} << 10) / span.panel_bytes);
  const size_t even = span.n_panels / (static_cast<size_t>(pool.n_threads()) * 8);
  const size_t per_task = (std::max(least, even) + group - 1) / group * group;
  pool.Run((span.n_panels + per_task - 1) / per_task, [&](size_t task, int) {
    run(task * per_task, std::min(span.n_panels, (task + 1) * per_task));
  });
}

template <DType kType>
absl::Status GemmFloats(const GemmSpan& span, CpuContext& context) {
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  if (n_rows > kBlockRows) return GemmBlocks(FloatTile<kType>{args.x.f32(), k}, span, context);
  RunFewRows(span, kMaxPanelsAtOnce, *context.pool, [&](size_t begin, size_t end) HWY_ATTR {
    for (size_t p = begin; p < end; p += kMaxPanelsAtOnce) {
      const size_t group = std::min(kMaxPanelsAtOnce, end - p);
      const uint8_t* panels[kMaxPanelsAtOnce];
      for (size_t i = 0; i < group; ++i) panels[i] = span.panels + (p + i) * span.panel_bytes;
      constexpr size_t kWidth = kMaxPanelsAtOnce * kPanelRows;
      HWY_ALIGN float c[kBlockRows * kWidth];
      MulPanels<kType>(n_rows, args.x.f32(), k, panels, group, k, c, kWidth, false);
      for (size_t i = 0; i < group; ++i) {
        FinishPanel(span, p + i, 0, n_rows, c + i * kPanelRows, kWidth);
      }
    }
  });
  return absl::OkStatus();
}

template <gguf::TensorType kType>
absl::Status GemmQuant(const GemmSpan& span, CpuContext& context) {
  using Tile = QuantTile<kType>;
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Tile tile{args.x.f32(), k};
  if (n_rows > 1) return GemmBlocks(tile, span, context);
  const size_t n_blocks = (k + Tile::kInputs - 1) / Tile::kInputs;
  SC_ASSIGN_OR_RETURN(float* const scratch, context.scratch->Floats(n_blocks * Tile::kXBytes / 4));
  uint8_t* const x_copies = reinterpret_cast<uint8_t*>(scratch);
  for (size_t b = 0; b < n_blocks; ++b) {
    const size_t first = b * Tile::kInputs;
    tile.CopyX(0, 1, first, std::min(Tile::kInputs, k - first), x_copies + b * Tile::kXBytes);
  }
  RunFewRows(span, 1, *context.pool, [&](size_t begin, size_t end) HWY_ATTR {
    HWY_ALIGN float c[kPanelRows];
    for (size_t p = begin; p < end; ++p) {
      Tile::MulOne(x_copies, span.panels + p * span.panel_bytes, k, c);
      FinishPanel(span, p, 0, 1, c, kPanelRows);
    }
  });
  return absl::OkStatus();
}

absl::Status GemmPart(gguf::TensorType encoding, const GemmSpan& span, CpuContext& context) {
  using enum gguf::TensorType;
  switch (encoding) {
    case kF32:
      return GemmFloats<DType::kF32>(span, context);
    case kBF16:
      return GemmFloats<DType::kBF16>(span, context);
    case kF16:
      return GemmFloats<DType::kF16>(span, context);
    case kQ4_0:
      return GemmQuant<kQ4_0>(span, context);
    case kQ5_0:
      return GemmQuant<kQ5_0>(span, context);
    case kQ8_0:
      return GemmQuant<kQ8_0>(span, context);
    case kQ4_K:
      return GemmQuant<kQ4_K>(span, context);
    case kQ5_K:
      return GemmQuant<kQ5_K>(span, context);
    case kQ6_K:
      return GemmQuant<kQ6_K>(span, context);
  }
  return absl::OkStatus();
}

absl::Status Gemm(const GemmArgs& args, CpuContext& context) {
  for (MatrixParts parts(*args.w); !parts.at_end(); parts.Next()) {
    const GemmSpan span{.args = &args,
                        .panels = parts.panels(),
                        .panel_bytes = parts.panel_bytes(),
                        .n_panels = PanelCount(parts.n_rows()),
                        .n_inputs = static_cast<size_t>(args.w->cols),
                        .first_output = parts.first_row(),
                        .n_outputs = parts.n_rows()};
    SC_RETURN_IF_ERROR(GemmPart(parts.encoding(), span, context));
  }
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Gemm);

CpuKernel<GemmArgs> ChooseGemm() { return &HWY_DYNAMIC_DISPATCH(Gemm); }

}  // namespace stagecoach::kernels
#endif
