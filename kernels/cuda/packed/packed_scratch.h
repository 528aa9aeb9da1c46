// Scratch memory of products with quantized matrices (packed_matrices.h, packed_experts.h). Plain
// arithmetic without CUDA, so that planning for GPUs on other machines gets the same sizes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/fp8/fp8_part.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

// Weights that are expanded to 16 bits at a time are not larger, if they are not those of one
// expert. Larger matrices, such as those of large vocabularies, stay packed for any number of rows.
inline constexpr int64_t kMostExpandedBytes = int64_t{512} << 20;
// Rows whose inputs become FP8 at once.
inline constexpr int32_t kQuantizedRows = 4096;
// Rows whose inputs are brought into a part's order at once.
inline constexpr int32_t kPermutedRows = 64;
// Mean number of rows per expert beyond which expanded weights are faster (estimated).
inline constexpr int32_t kMostPackedRowsOfExpert = 96;

// Bytes of a matrix's weights in 16 bits.
constexpr int64_t ExpandedBytes(std::span<const MatrixPart> parts, int32_t cols) {
  int64_t rows = 0;
  for (const MatrixPart& part : parts) rows += part.rows;
  return rows * cols * static_cast<int64_t>(sizeof(uint16_t));
}

// In bytes. A stage's matrices share the memory of each kind, which has what the largest needs.
struct PackedScratch {
  size_t expanded = 0;   // weights in 16 bits
  size_t quantized = 0;  // inputs in FP8, and their scales
  size_t permuted = 0;   // inputs in the order of a part

  constexpr size_t total() const { return expanded + quantized + permuted; }
  constexpr void Include(const PackedScratch& other) {
    expanded = std::max(expanded, other.expanded);
    quantized = std::max(quantized, other.quantized);
    permuted = std::max(permuted, other.permuted);
  }
};

// For products with one matrix.
constexpr PackedScratch PackedScratchOf(std::span<const MatrixPart> parts, int32_t cols,
                                        bool is_hopper, bool batch_invariant) {
  const auto width = static_cast<size_t>(cols);
  PackedScratch scratch;
  bool in_fp8 = !batch_invariant;
  for (const MatrixPart& part : parts) {
    in_fp8 = in_fp8 && HasFp8Rows(part, cols) && MultipliesFp8Rows(is_hopper, part.rows);
    if (part.encoding.is_permuted) scratch.permuted = kPermutedRows * width * sizeof(float);
  }
  const int64_t expanded = ExpandedBytes(parts, cols);
  if (in_fp8) {
    scratch.quantized = kQuantizedRows * (width + sizeof(float));
  } else if (!batch_invariant && expanded <= kMostExpandedBytes) {
    scratch.expanded = static_cast<size_t>(expanded);
  }
  return scratch;
}

// Number of experts that are expanded at a time. matrix_bytes: ExpandedBytes of the larger matrix
constexpr int32_t ExpandedTogether(int64_t matrix_bytes, int32_t n_experts,
                                   int64_t most_bytes = kMostExpandedBytes) {
  return static_cast<int32_t>(std::clamp<int64_t>(most_bytes / matrix_bytes, 1, n_experts));
}

}  // namespace stagecoach::kernels::cuda
