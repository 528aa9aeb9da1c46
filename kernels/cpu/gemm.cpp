// y = x w^T over packed panels. Few rows: memory-bound, every panel is read once. Many rows:
// compute-bound, blocks of rows and of inputs that stay in the caches.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/gemm.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>

#include "common/status.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// y rows [first_row, first_row + n_rows), columns of `panel`, from c: n_rows rows, c_stride apart,
// of 16.
HWY_INLINE void Finish(const GemmArgs& args, size_t first_row, size_t n_rows, size_t panel,
                       const float* c, size_t c_stride) {
  const PanelTag d;
  const size_t n = static_cast<size_t>(args.w->rows);
  const size_t first = panel * kPanelRows;
  const size_t width = std::min(kPanelRows, n - first);
  HWY_ALIGN float bias[kPanelRows] = {};
  if (args.bias != nullptr) std::copy_n(args.bias + first, width, bias);
  for (size_t r = 0; r < n_rows; ++r) {
    const float* const from = c + r * c_stride;
    float* const y = args.y + (first_row + r) * n + first;
    if (width == kPanelRows) {
      for (size_t v = 0; v < kPanelRows; v += kPanelLanes) {
        PanelVec sum = hn::Add(hn::LoadU(d, from + v), hn::Load(d, bias + v));
        if (args.add_to_y) sum = hn::Add(hn::LoadU(d, y + v), sum);
        hn::StoreU(sum, d, y + v);
      }
    } else {
      for (size_t i = 0; i < width; ++i) {
        const float sum = from[i] + bias[i];
        y[i] = args.add_to_y ? y[i] + sum : sum;
      }
    }
  }
}

template <DType kType>
void GemmFewRows(const GemmArgs& args, CpuContext& context) {
  const size_t n_panels = PanelCount(args.w->rows), k = args.w->cols;
  const size_t n_rows = static_cast<size_t>(args.n_rows);
  const size_t panel_bytes = PanelBytes(k, kType);
  // Tasks of 64 KiB or more, several a thread, so that a slow thread takes fewer.
  const size_t least = std::max<size_t>(1, (size_t{64} << 10) / panel_bytes);
  const size_t even = n_panels / (static_cast<size_t>(context.pool->n_threads()) * 8);
  const size_t per_task =
      (std::max(least, even) + kMaxPanelsAtOnce - 1) / kMaxPanelsAtOnce * kMaxPanelsAtOnce;
  context.pool->Run((n_panels + per_task - 1) / per_task, [&](size_t task, int) HWY_ATTR {
    const size_t end = std::min(n_panels, (task + 1) * per_task);
    for (size_t p = task * per_task; p < end; p += kMaxPanelsAtOnce) {
      const size_t group = std::min(kMaxPanelsAtOnce, end - p);
      const uint8_t* panels[kMaxPanelsAtOnce];
      for (size_t i = 0; i < group; ++i) panels[i] = PanelOf(*args.w, p + i);
      constexpr size_t kWidth = kMaxPanelsAtOnce * kPanelRows;
      HWY_ALIGN float c[kBlockRows * kWidth];
      MulPanels<kType>(n_rows, args.x, k, panels, group, k, c, kWidth, false);
      for (size_t i = 0; i < group; ++i) {
        Finish(args, 0, n_rows, p + i, c + i * kPanelRows, kWidth);
      }
    }
  });
}

template <DType kType>
absl::Status GemmManyRows(const GemmArgs& args, CpuContext& context) {
  const size_t n_panels = PanelCount(args.w->rows), k = args.w->cols;
  const size_t n_rows = static_cast<size_t>(args.n_rows);
  constexpr size_t kGroup = PanelsAtOnce(kBlockRows);
  constexpr size_t kWidth = kGroup * kPanelRows;
  // A block of inputs of the panels stays in L1 while all rows of the block pass, a block of rows
  // in L2.
  constexpr size_t kInputs = (size_t{16} << 10) / (kWidth * DTypeBytes(kType));
  const size_t fitting = (size_t{256} << 10) / (k * sizeof(float)) / kBlockRows * kBlockRows;
  const size_t block = std::clamp(fitting, 4 * kBlockRows, 16 * kBlockRows);

  const size_t n_threads = static_cast<size_t>(context.pool->n_threads());
  const size_t n_row_tasks = (n_rows + block - 1) / block;
  const size_t n_groups = (n_panels + kGroup - 1) / kGroup;
  // About eight tasks a thread, so that the last to finish is not far behind.
  const size_t column_tasks =
      std::clamp<size_t>((n_threads * 8 + n_row_tasks - 1) / n_row_tasks, 1, n_groups);
  const size_t groups_per_task = (n_groups + column_tasks - 1) / column_tasks;
  const size_t n_column_tasks = (n_groups + groups_per_task - 1) / groups_per_task;

  SC_ASSIGN_OR_RETURN(float* const scratch, context.scratch->Floats(n_threads * block * kWidth));
  context.pool->Run(n_row_tasks * n_column_tasks, [&](size_t task, int thread) HWY_ATTR {
    const size_t first_row = task / n_column_tasks * block;
    const size_t rows = std::min(block, n_rows - first_row);
    const float* const x = args.x + first_row * k;
    float* const c = scratch + static_cast<size_t>(thread) * block * kWidth;
    const size_t first_group = task % n_column_tasks * groups_per_task;
    const size_t end_panel = std::min(n_panels, (first_group + groups_per_task) * kGroup);
    for (size_t p = first_group * kGroup; p < end_panel; p += kGroup) {
      const size_t group = std::min(kGroup, end_panel - p);
      size_t input = 0;
      do {
        const uint8_t* panels[kGroup];
        for (size_t i = 0; i < group; ++i) {
          panels[i] = PanelOf(*args.w, p + i) + input * kPanelRows * DTypeBytes(kType);
        }
        MulPanels<kType>(rows, x + input, k, panels, group, std::min(kInputs, k - input), c, kWidth,
                         input > 0);
        input += kInputs;
      } while (input < k);
      for (size_t i = 0; i < group; ++i) {
        Finish(args, first_row, rows, p + i, c + i * kPanelRows, kWidth);
      }
    }
  });
  return absl::OkStatus();
}

template <DType kType>
absl::Status GemmOf(const GemmArgs& args, CpuContext& context) {
  if (static_cast<size_t>(args.n_rows) > kBlockRows) return GemmManyRows<kType>(args, context);
  GemmFewRows<kType>(args, context);
  return absl::OkStatus();
}

absl::Status Gemm(const GemmArgs& args, CpuContext& context) {
  switch (args.w->dtype) {
    case DType::kF32:
      return GemmOf<DType::kF32>(args, context);
    case DType::kBF16:
      return GemmOf<DType::kBF16>(args, context);
    case DType::kF16:
      return GemmOf<DType::kF16>(args, context);
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
