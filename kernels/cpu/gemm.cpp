// y = x w^T over packed panels, with float or quantized weights. Few rows: memory-bound, so every
// panel is read once, directly from memory. Many rows: compute-bound, see gemm_blocks-inl.h.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "common/status.h"
#include "kernels/cpu/bf16_amx-inl.h"
#include "kernels/cpu/bf16_dot-inl.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/fp8-inl.h"
#include "kernels/cpu/fp8_amx-inl.h"
#include "kernels/cpu/gemm_blocks-inl.h"
#include "kernels/cpu/gemm_finish-inl.h"
#include "kernels/cpu/matrix_parts.h"
#include "kernels/cpu/quant-inl.h"
#include "kernels/cpu/quant_amx-inl.h"
#include "kernels/cpu/tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Panels that a thread reads concurrently if there are few rows. They are far apart: memory and
// hardware prefetchers serve several long, distant streams faster than one stream, or than short
// streams that start again with every panel (1.2 times on Zen 3).
inline constexpr size_t kStreams = kMaxPanelsAtOnce;
inline constexpr size_t kStreamsWidth = kStreams * kPanelRows;

// Multiplies up to kMostRows rows on all threads. mul(panels, n, c) multiplies n <= kStreams
// panels into c: [n_rows, kStreamsWidth]. Tasks have at least 64 KiB of weights, several per
// thread, so that a slow thread gets fewer.
template <size_t kMostRows = kBlockRows, typename F>
void RunFewRows(const GemmSpan& span, ThreadPool& pool, const F& mul) {
  const size_t n_rows = static_cast<size_t>(span.args->n_rows);
  const size_t least = std::max<size_t>(1, (size_t{64} << 10) / span.panel_bytes);
  const size_t even = span.n_panels / (static_cast<size_t>(pool.n_threads()) * 8);
  const size_t length = (std::max(least, even) + kStreams - 1) / kStreams;  // panels per stream
  const size_t per_task = length * kStreams;
  pool.Run((span.n_panels + per_task - 1) / per_task, [&](size_t task, int) HWY_ATTR {
    const size_t begin = task * per_task, end = std::min(span.n_panels, begin + length);
    for (size_t first = begin; first < end; ++first) {
      const uint8_t* panels[kStreams] = {};
      size_t n = 0;
      for (size_t p = first; p < span.n_panels && n < kStreams; p += length) {
        panels[n++] = span.panels + p * span.panel_bytes;
      }
      HWY_ALIGN float c[kMostRows * kStreamsWidth];
      mul(panels, n, c);
      for (size_t i = 0; i < n; ++i) {
        FinishPanel(span, first + i * length, 0, n_rows, c + i * kPanelRows, kStreamsWidth);
      }
    }
  });
}

template <DType kType>
absl::Status GemmFloats(const GemmSpan& span, CpuContext& context) {
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  if (n_rows > kBlockRows) return GemmBlocks(FloatTile<kType>{args.x.f32(), k}, span, context);
  RunFewRows(
      span, *context.pool, [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
        MulPanels<kType>(n_rows, args.x.f32(), k, panels, n_panels, k, c, kStreamsWidth, false);
      });
  return absl::OkStatus();
}

#if HWY_TARGET == HWY_AVX3

absl::Status GemmBf16Dots(const GemmSpan& span, CpuContext& context) {
  using Tile = Bf16DotTile;
  constexpr size_t kMostChunks = 2;
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Tile tile{args.x.f32(), k};
  const size_t n_chunks = (n_rows + Tile::kRows - 1) / Tile::kRows;
  if (n_chunks > kMostChunks) return GemmBlocks(tile, span, context);
  const size_t n_pairs = Tile::PairCount(k), chunk = (n_rows + n_chunks - 1) / n_chunks;
  SC_ASSIGN_OR_RETURN(float* const scratch, context.scratch->Floats(n_rows * n_pairs));
  uint32_t* const pairs = reinterpret_cast<uint32_t*>(scratch);
  const auto rows_of = [&](size_t first) { return std::min(chunk, n_rows - first); };
  for (size_t first = 0; first < n_rows; first += chunk) {
    tile.CopyPairs(first, rows_of(first), 0, k, rows_of(first), pairs + first * n_pairs);
  }
  RunFewRows<kMostChunks * Tile::kRows>(
      span, *context.pool, [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
        for (size_t first = 0; first < n_rows; first += chunk) {
          Tile::MulFew(rows_of(first), pairs + first * n_pairs, panels, n_panels, n_pairs,
                       c + first * kStreamsWidth, kStreamsWidth);
        }
      });
  return absl::OkStatus();
}

// Copies up to 32 rows with all of their inputs.
absl::StatusOr<uint8_t*> CopyFewRows(const Bf16AmxTile& tile, size_t n_rows, CpuContext& context) {
  const size_t bytes = Bf16AmxTile::StepCount(tile.k) * Bf16AmxTile::kStepBytes;
  SC_ASSIGN_OR_RETURN(float* const scratch, context.scratch->Floats(bytes / sizeof(float)));
  uint8_t* const steps = reinterpret_cast<uint8_t*>(scratch);
  tile.CopyX(0, n_rows, 0, tile.k, steps);
  return steps;
}

absl::Status GemmBf16Amx(const GemmSpan& span, CpuContext& context) {
  using Tile = Bf16AmxTile;
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Tile tile{args.x.f32(), k};
  if (n_rows > Tile::kRows) return GemmBlocks(tile, span, context);
  SC_ASSIGN_OR_RETURN(uint8_t* const steps, CopyFewRows(tile, n_rows, context));
  RunFewRows<Tile::kRows>(span, *context.pool,
                          [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
                            Tile::MulFew(n_rows, steps, panels, n_panels, k, c, kStreamsWidth);
                          });
  return absl::OkStatus();
}

#endif

// c: [n_panels, 16]
template <typename Tile, size_t kPanels>
HWY_INLINE void MulOneRow(const Tile& tile, const uint8_t* x_copy, const uint8_t* const* panels,
                          size_t n_panels, size_t k, float* c) {
  if (n_panels == kPanels) {
    tile.template MulOne<kPanels>(x_copy, panels, k, c);
  } else if constexpr (kPanels > 1) {
    MulOneRow<Tile, kPanels - 1>(tile, x_copy, panels, n_panels, k, c);
  }
}

template <Code kType, bool kDots>
absl::Status GemmQuantVectors(const GemmSpan& span, CpuContext& context) {
  using Tile = QuantTile<kType, kDots>;
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Tile tile{args.x.f32(), k, span.encoding, span.order, QuantLayoutOf(span.encoding, k)};
  if (n_rows > Tile::kFewRows) return GemmBlocks(tile, span, context);
  const size_t row_bytes = (k + Tile::kInputs - 1) / Tile::kInputs * Tile::template kCopyBytes<1>;
  SC_ASSIGN_OR_RETURN(float* const scratch, context.scratch->Floats(n_rows * row_bytes / 4));
  uint8_t* const x_copy = reinterpret_cast<uint8_t*>(scratch);
  for (size_t r = 0; r < n_rows; ++r) tile.CopyOneRow(r, x_copy + r * row_bytes);
  RunFewRows<Tile::kFewRows>(span, *context.pool,
                             [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
                               for (size_t r = 0; r < n_rows; ++r) {
                                 MulOneRow<Tile, kStreams>(tile, x_copy + r * row_bytes, panels,
                                                           n_panels, k, c + r * kStreamsWidth);
                               }
                             });
  return absl::OkStatus();
}

#if HWY_TARGET == HWY_AVX3

template <Code kType>
absl::Status GemmQuantAmx(const GemmSpan& span, CpuContext& context) {
  using Tile = QuantAmxTile<kType>;
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Tile tile{{args.x.f32(), k, span.encoding, span.order, QuantLayoutOf(span.encoding, k)}};
  if (n_rows > Tile::kRows) return GemmBlocks(tile, span, context);
  const size_t n_copies = (k + Tile::kInputs - 1) / Tile::kInputs;
  SC_ASSIGN_OR_RETURN(float* const scratch,
                      context.scratch->Floats(n_copies * Tile::kXBytes / sizeof(float)));
  uint8_t* const x_copies = reinterpret_cast<uint8_t*>(scratch);
  for (size_t i = 0; i < n_copies; ++i) {
    const size_t first = i * Tile::kInputs;
    tile.CopyX(0, n_rows, first, std::min(Tile::kInputs, k - first), x_copies + i * Tile::kXBytes);
  }
  RunFewRows<Tile::kRows>(span, *context.pool,
                          [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
                            tile.MulFew(n_rows, x_copies, panels, n_panels, c, kStreamsWidth);
                          });
  return absl::OkStatus();
}

#endif

template <Code kType, CpuExtensions kExtensions>
absl::Status GemmQuant(const GemmSpan& span, CpuContext& context) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (kExtensions == CpuExtensions::kAmx) {
    const bool is_few = static_cast<size_t>(span.args->n_rows) <= QuantAmxTile<kType>::kFewRows;
    if (!is_few) return GemmQuantAmx<kType>(span, context);
  }
#endif
  constexpr bool kDots = kExtensions != CpuExtensions::kNone;
  return GemmQuantVectors<kType, kDots>(span, context);
}

absl::Status GemmFp8(const GemmSpan& span, CpuContext& context) {
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Fp8Tile tile{{args.x.f32(), k}, span.encoding};
  if (n_rows > Fp8Tile::kFewRows) return GemmBlocks(tile, span, context);
  RunFewRows<Fp8Tile::kFewRows>(
      span, *context.pool, [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
        tile.MulFew(n_rows, panels, n_panels, c, kStreamsWidth);
      });
  return absl::OkStatus();
}

#if HWY_TARGET == HWY_AVX3

// REQUIRES: Fp8AmxTile::SumInputs is not 0
absl::Status GemmFp8Amx(const GemmSpan& span, CpuContext& context) {
  using Tile = Fp8AmxTile;
  const GemmArgs& args = *span.args;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(args.n_rows);
  const Tile tile{.weights = {{args.x.f32(), k}, span.encoding}};
  if (n_rows > Tile::kRows) return GemmBlocks(tile, span, context);
  SC_ASSIGN_OR_RETURN(uint8_t* const steps, CopyFewRows(tile.rows(), n_rows, context));
  RunFewRows<Tile::kRows>(span, *context.pool,
                          [&](const uint8_t* const* panels, size_t n_panels, float* c) HWY_ATTR {
                            tile.MulFew(n_rows, steps, panels, n_panels, c, kStreamsWidth);
                          });
  return absl::OkStatus();
}

#endif

template <CpuExtensions kExtensions>
absl::Status GemmPart(const GemmSpan& span, CpuContext& context) {
  using enum Code;
#if HWY_TARGET == HWY_AVX3
  if (span.encoding.code == kBF16) {
    if (kExtensions == CpuExtensions::kAmx) return GemmBf16Amx(span, context);
    if (kExtensions == CpuExtensions::kDots) return GemmBf16Dots(span, context);
  }
  if (kExtensions == CpuExtensions::kAmx && span.encoding.code == kFp8 &&
      Fp8AmxTile::SumInputs(span.encoding, span.n_inputs) != 0) {
    return GemmFp8Amx(span, context);
  }
#endif
  switch (span.encoding.code) {
    case kF32:
      return GemmFloats<DType::kF32>(span, context);
    case kBF16:
      return GemmFloats<DType::kBF16>(span, context);
    case kF16:
      return GemmFloats<DType::kF16>(span, context);
    case kQ4_0:
      return GemmQuant<kQ4_0, kExtensions>(span, context);
    case kQ5_0:
      return GemmQuant<kQ5_0, kExtensions>(span, context);
    case kQ8_0:
      return GemmQuant<kQ8_0, kExtensions>(span, context);
    case kQ4_K:
      return GemmQuant<kQ4_K, kExtensions>(span, context);
    case kQ5_K:
      return GemmQuant<kQ5_K, kExtensions>(span, context);
    case kQ6_K:
      return GemmQuant<kQ6_K, kExtensions>(span, context);
    case kIQ4_NL:
      return GemmQuant<kIQ4_NL, kExtensions>(span, context);
    case kIQ4_XS:
      return GemmQuant<kIQ4_XS, kExtensions>(span, context);
    case kInt4:
      return GemmQuant<kInt4, kExtensions>(span, context);
    case kInt8:
      return GemmQuant<kInt8, kExtensions>(span, context);
    case kMxFp4:
      return GemmQuant<kMxFp4, kExtensions>(span, context);
    case kNvFp4:
      return GemmQuant<kNvFp4, kExtensions>(span, context);
    case kFp8:
      return GemmFp8(span, context);
  }
  return absl::OkStatus();
}

template <CpuExtensions kExtensions>
absl::Status GemmParts(const GemmArgs& args, CpuContext& context) {
  for (MatrixParts parts(*args.w); !parts.at_end(); parts.Next()) {
    const GemmSpan span{.args = &args,
                        .panels = parts.panels(),
                        .panel_bytes = parts.panel_bytes(),
                        .n_panels = PanelCount(parts.n_rows()),
                        .n_inputs = static_cast<size_t>(args.w->cols),
                        .first_output = parts.first_row(),
                        .n_outputs = parts.n_rows(),
                        .encoding = parts.encoding(),
                        .order = parts.order()};
    SC_RETURN_IF_ERROR(GemmPart<kExtensions>(span, context));
  }
  return absl::OkStatus();
}

absl::Status Gemm(const GemmArgs& args, CpuContext& context) {
  return GemmParts<CpuExtensions::kNone>(args, context);
}

// Those for CPUs with extensions: the same on other instruction sets, where nothing calls them.
absl::Status GemmWithDots(const GemmArgs& args, CpuContext& context) {
  constexpr bool kHas = HWY_TARGET == HWY_AVX3;
  return GemmParts<kHas ? CpuExtensions::kDots : CpuExtensions::kNone>(args, context);
}
absl::Status GemmWithAmx(const GemmArgs& args, CpuContext& context) {
  constexpr bool kHas = HWY_TARGET == HWY_AVX3;
  return GemmParts<kHas ? CpuExtensions::kAmx : CpuExtensions::kNone>(args, context);
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Gemm);
HWY_EXPORT(GemmWithDots);
HWY_EXPORT(GemmWithAmx);

CpuKernel<GemmArgs> ChooseGemm(CpuExtensions extensions) {
  switch (extensions) {
    case CpuExtensions::kAmx:
      return &HWY_DYNAMIC_DISPATCH(GemmWithAmx);
    case CpuExtensions::kDots:
      return &HWY_DYNAMIC_DISPATCH(GemmWithDots);
    case CpuExtensions::kNone:
      break;
  }
  return &HWY_DYNAMIC_DISPATCH(Gemm);
}

}  // namespace stagecoach::kernels
#endif
