// Blocked GEMM loops for many rows, for all weight encodings. Included once per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_GEMM_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_GEMM_BLOCKS_INL_H_
#undef STAGECOACH_KERNELS_CPU_GEMM_BLOCKS_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_GEMM_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/status.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/gemm_finish-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

// Tile (FloatTile, Bf16DotTile, QuantTile) defines: kRows, the most rows per tile; kRowStep, whose
// multiples take time in proportion; kGroup, panels per tile; kInputs, inputs per block; kXBytes
// and kWBytes, the size of packed copies of kRows rows and of kGroup panels for one block of
// inputs; and the functions that make the copies and multiply them.
//
// One block of inputs of a panel group stays in L1 while all tiles of a block of rows use it. The
// copy of that block of rows stays in L2 while all panels of a task use it.
template <typename Tile>
absl::Status GemmBlocks(const Tile& tile, const GemmSpan& span, CpuContext& context) {
  constexpr size_t kL2Bytes = size_t{128} << 10;
  constexpr size_t kMaxTiles = std::max<size_t>(1, kL2Bytes / Tile::kXBytes);
  constexpr size_t kMaxPanels = 16;  // panels whose sums are kept between blocks of inputs
  // The sums of a tile are contiguous. Rows at power-of-two distances would compete for the same L1
  // sets, which costs a quarter of the speed.
  constexpr size_t kTileSums = Tile::kRows * Tile::kGroup * kPanelRows;
  const size_t k = span.n_inputs, n_rows = static_cast<size_t>(span.args->n_rows);
  const size_t n_blocks = (k + Tile::kInputs - 1) / Tile::kInputs;
  // Tiles of equal size.
  const size_t least_tiles = (n_rows + Tile::kRows - 1) / Tile::kRows;
  const size_t even_rows = (n_rows + least_tiles - 1) / least_tiles;
  const size_t tile_rows = (even_rows + Tile::kRowStep - 1) / Tile::kRowStep * Tile::kRowStep;
  const size_t n_tiles = (n_rows + tile_rows - 1) / tile_rows;
  const size_t n_row_blocks = (n_tiles + kMaxTiles - 1) / kMaxTiles;
  const size_t tiles_per_block = (n_tiles + n_row_blocks - 1) / n_row_blocks;
  const size_t n_threads = static_cast<size_t>(context.pool->n_threads());

  // Scratch: the copies of x as [block of inputs][tile], then per thread a copy of panels and the
  // sums.
  const size_t x_bytes = n_blocks * n_tiles * Tile::kXBytes;
  const size_t sum_floats = tiles_per_block * (kMaxPanels / Tile::kGroup) * kTileSums;
  const size_t thread_bytes = Tile::kWBytes + sum_floats * sizeof(float);
  SC_ASSIGN_OR_RETURN(float* const scratch,
                      context.scratch->Floats((x_bytes + n_threads * thread_bytes) / 4));
  uint8_t* const x_copies = reinterpret_cast<uint8_t*>(scratch);
  const auto inputs_of = [&](size_t block) {
    return std::min(Tile::kInputs, k - block * Tile::kInputs);
  };
  const auto rows_of = [&](size_t t) { return std::min(tile_rows, n_rows - t * tile_rows); };
  context.pool->Run(n_tiles, [&](size_t t, int) HWY_ATTR {
    for (size_t b = 0; b < n_blocks; ++b) {
      tile.CopyX(t * tile_rows, rows_of(t), b * Tile::kInputs, inputs_of(b),
                 x_copies + (b * n_tiles + t) * Tile::kXBytes);
    }
  });

  // Tasks of equal size, several per thread.
  const size_t n_groups = (span.n_panels + Tile::kGroup - 1) / Tile::kGroup;
  const size_t most_groups = kMaxPanels / Tile::kGroup;
  const size_t wanted_tasks = (n_threads * 6 + n_row_blocks - 1) / n_row_blocks;
  const size_t n_column_tasks = std::clamp((n_groups + most_groups - 1) / most_groups,
                                           std::min(wanted_tasks, n_groups), n_groups);
  const size_t groups_per_task = (n_groups + n_column_tasks - 1) / n_column_tasks;
  context.pool->Run(n_column_tasks * n_row_blocks, [&](size_t task, int thread) HWY_ATTR {
    // Consecutive tasks use the same panels.
    const size_t first_tile = task % n_row_blocks * tiles_per_block;
    const size_t end_tile = std::min(n_tiles, first_tile + tiles_per_block);
    const size_t first_panel = task / n_row_blocks * groups_per_task * Tile::kGroup;
    const size_t end_panel = std::min(span.n_panels, first_panel + groups_per_task * Tile::kGroup);
    uint8_t* const w_copy = x_copies + x_bytes + static_cast<size_t>(thread) * thread_bytes;
    float* const sums = reinterpret_cast<float*>(w_copy + Tile::kWBytes);
    const auto sums_of = [&](size_t panel, size_t t) {
      const size_t group = (panel - first_panel) / Tile::kGroup;
      return sums + (group * tiles_per_block + t - first_tile) * kTileSums;
    };
    for (size_t b = 0; b < n_blocks; ++b) {
      for (size_t p = first_panel; p < end_panel; p += Tile::kGroup) {
        const uint8_t* panels[Tile::kGroup];
        const size_t n_panels = std::min(Tile::kGroup, end_panel - p);
        for (size_t i = 0; i < n_panels; ++i) panels[i] = span.panels + (p + i) * span.panel_bytes;
        tile.CopyW(panels, n_panels, b * Tile::kInputs, inputs_of(b), w_copy);
        for (size_t t = first_tile; t < end_tile; ++t) {
          tile.Mul(rows_of(t), x_copies + (b * n_tiles + t) * Tile::kXBytes, w_copy,
                   b * Tile::kInputs, inputs_of(b), sums_of(p, t));
        }
      }
    }
    for (size_t t = first_tile; t < end_tile; ++t) {
      for (size_t p = first_panel; p < end_panel; ++p) {
        const size_t within = (p - first_panel) % Tile::kGroup;
        FinishPanel(span, p, t * tile_rows, rows_of(t),
                    sums_of(p - within, t) + within * kPanelRows, Tile::kGroup * kPanelRows);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
