// GEMMs of many matrices with Hopper instructions: each matrix multiplies rows of its own (mixture
// of experts). Every tile shape adds a row's inputs in one order, that of Additions::kInOrder in
// hopper_gemm.h, so a row's result has the same bits for any number of rows and whichever rows
// share its tile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Whether this build and device have the kernels for the matrices: all of one shape and 16-bit
// dtype, aligned to 16 bytes, with a multiple of 64 inputs and of 8 outputs. Independent of the
// number of rows.
bool HasHopperGrouped(const Stream& stream, std::span<const Matrix> matrices, bool gated);

// Tensor maps of matrices, on the host; a kernel needs them in device memory, aligned to
// kTensorMapBytes. REQUIRES: HasHopperGrouped. maps: [matrices.size() * kTensorMapBytes]. Returns
// cudaErrorNotSupported if the driver cannot encode maps.
inline constexpr size_t kTensorMapBytes = 128;
cudaError_t MakeMatrixMaps(std::span<const Matrix> matrices, unsigned char* maps);

// Rows per tile, a multiple of kMaxSkinnyRows, that suit `n_rows` rows of `n_matrices` matrices.
int32_t HopperGroupedTileRows(int32_t n_rows, int32_t n_matrices);
// All of them, for tests.
inline constexpr int32_t kHopperGroupedTileRows[] = {16, 32, 64, 128};

struct HopperGroupedArgs {
  ConstAct x;        // [n_rows, cols], sorted as the tiles are
  const void* maps;  // device memory with MakeMatrixMaps of matrices [rows, cols]
  int32_t n_rows;
  int32_t rows, cols;
  const RowTile* tiles;    // [n_tiles], device memory
  const int32_t* n_tiles;  // [1], device memory
  int32_t max_tiles;       // known on the host: upper bound of *n_tiles
  int32_t tile_rows;       // one of kHopperGroupedTileRows
  // y [n_rows, rows] of x's dtype; if gated: [n_rows, rows / 2], kind(gate) * up, where the first
  // half of a matrix is the gate. The input of the activation is rounded like y of a GEMM.
  Act y;
  bool gated;
  Activation kind;  // if gated: kSilu or kGeluTanh
};
// The kernel reads the tiles before the previous kernel of the stream is done. So no kernel that is
// not done when the previous one lets the next start (LetNextStart) may have made them.
cudaError_t HopperGroupedGemm(const Stream& stream, const HopperGroupedArgs& args);

}  // namespace stagecoach::kernels::cuda
