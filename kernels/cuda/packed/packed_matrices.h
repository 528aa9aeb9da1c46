// Matrices whose weights stay quantized on the GPU (Matrix::parts): their memory, and Ops' calls on
// them.
//
// A product with up to kMostPackedRows rows reads the packed weights (few_rows.h, hopper_rows.h,
// many_rows.h), with hopper_rows.h more. For more rows, all weights of the matrix are expanded to
// 16 bits into memory that the matrices share, and the usual product multiplies them.
// Batch-invariant, all products are those of few_rows.h.
//
// FP8 matrices with plain rows (fp8/fp8_part.h) are not packed. Products with up to
// kMostFewFp8Rows rows are those of fp8/fp8_skinny.h. For more rows, the inputs become FP8, too, if
// the device multiplies FP8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/packed/few_rows.h"
#include "kernels/cuda/packed/packed_layout.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// A part of a matrix with its address.
struct PackedPlace {
  PackedPart part;
  int32_t first_row;
};

class PackedMatrices {
 public:
  // Beyond this number of rows, expanded weights are faster.
  static constexpr int32_t kMostPackedRows = 64;
  // Beyond this number, those of hopper_rows.h or many_rows.h are faster where they suit the
  // matrix.
  static constexpr int32_t kMostFewRows = 16;
  // Beyond this number, products in FP8 are faster where the device has them. Codes of weights are
  // multiplied with 16-bit inputs up to it, which is more exact.
  static constexpr int32_t kMostFewFp8Rows = 8;

  // `stream` must outlive the result.
  PackedMatrices(const Stream* stream, bool batch_invariant)
      : stream_(stream), batch_invariant_(batch_invariant) {}

  static size_t Bytes(std::span<const MatrixPart> parts, int32_t cols);
  // See Ops::MatrixOf. Also allocates what products with the matrix need, so that none allocates.
  absl::StatusOr<Matrix> MatrixOf(Buffer memory, std::span<const MatrixPart> parts, int32_t cols);

  // Bytes of a row as a loader hands it over, in the part that has row first_row.
  static size_t StoredRowBytes(const Matrix& matrix, int32_t first_row);
  // See Ops::PackStored. rows: device memory
  absl::Status Pack(const Matrix& matrix, int32_t first_row, int32_t n_rows, const void* rows);
  // The address of the order of a part's inputs. REQUIRES: the part's encoding is permuted
  static int32_t* OrderOf(const Matrix& matrix, int32_t first_row);

  // See Ops::Gemm. y is float32 or has x's dtype.
  absl::Status Gemm(const GemmArgs& args, Gemms& gemms);
  // Ops::NormGemm (no activation), GemmActivate (no norm) or NormGemmActivate with fewer kernels
  // than one after the other. Returns false, without doing anything, if there is no such way.
  absl::StatusOr<bool> Fused(const NormArgs* norm, const GemmArgs& gemm,
                             const ActivationArgs* activation, Gemms& gemms);
  // The parts of a matrix. REQUIRES: all are packed
  static std::vector<PackedPlace> PlacesOf(const Matrix& matrix);
  // The memory for expanded weights, at least this large. Valid until the next call of this or of
  // MatrixOf.
  absl::StatusOr<Buffer> ExpandedMemory(size_t bytes);

  // See Ops::Embed. REQUIRES: there is a table with parts, and no position table
  absl::Status Embed(const EmbedArgs& args) const;

 private:
  absl::Status Reserve(const Matrix& matrix);
  absl::Status Grow(Buffer& buffer, size_t bytes);
  int32_t MostPackedRows(const Matrix& matrix) const;
  bool Expands(const GemmArgs& args) const;
  // By a kernel for up to 16 rows. type: of 16 bits, of the inputs
  absl::Status MultiplyFewRows(const FusedProduct& fused, DType type) const;
  absl::Status MultiplyPart(const PackedProduct& product, DType type) const;
  absl::Status MultiplyExpanded(const GemmArgs& args, Gemms& gemms);
  // Whether one kernel for packed weights also computes the norm before the product and the
  // activation behind it, or one of both (the other is null).
  bool FusesPacked(const NormArgs* norm, const GemmArgs& gemm,
                   const ActivationArgs* activation) const;
  // REQUIRES: FusesPacked
  absl::Status MultiplyFused(const NormArgs* norm, const GemmArgs& gemm,
                             const ActivationArgs* activation) const;
  // norm, activation: null, or what comes before and after the product
  absl::Status MultiplyInFp8(const NormArgs* norm, const GemmArgs& args,
                             const ActivationArgs* activation, Gemms& gemms);
  cudaError_t Quantize(const NormArgs* norm, const GemmArgs& args, int32_t first_row,
                       int32_t n_rows) const;
  // first_row: of the product in the activation
  absl::Status ActivateInFp8(const Fp8GemmArgs& product, const ActivationArgs& activation,
                             int32_t first_row, Gemms& gemms) const;
  bool InFp8(const Matrix& matrix) const;
  Fp8Inputs Quantized(int32_t cols) const;

  const Stream* const stream_;
  const bool batch_invariant_;
  Buffer expanded_, quantized_, permuted_;  // see PackedScratch
};

}  // namespace stagecoach::kernels::cuda
