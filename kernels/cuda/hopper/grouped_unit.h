// What a CTA of a grouped GEMM computes at a time: a tile of rows and a tile of outputs.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"

namespace stagecoach::kernels::cuda {

// Tiles of a run that have the same outputs come one after the other, so that they read their
// weights at about the same time.
struct GroupedUnit {
  int matrix;
  int row, end;  // in the sorted rows
  int output;

  // tile: that of unit / n_across in the list. n_across: tiles of outputs.
  __device__ __forceinline__ GroupedUnit(const RowTile& tile, int unit, int n_across, int tile_rows,
                                         int tile_outputs) {
    const int within = unit - tile.first_tile * n_across;
    const int n_down = (tile.n_rows + tile_rows - 1) / tile_rows;
    const int first = within % n_down * tile_rows;
    matrix = tile.matrix;
    row = tile.first_row + first;
    end = row + min(tile_rows, tile.n_rows - first);
    output = within / n_down * tile_outputs;
  }
};

}  // namespace stagecoach::kernels::cuda
