// Experts whose weights stay quantized on the GPU (Ops::ExpertMlp, GpusKeepExperts).
//
// One row is not grouped (ExpertMlpOfPairs). With more, products on Hopper read the packed weights
// for any number of rows (hopper_experts.h), if these kernels take the matrices. Otherwise few rows
// per expert read the packed weights, once per 16 rows (few_rows.h). With more, the weights of some
// experts at a time are expanded to 16 bits, and the usual grouped GEMMs multiply them.
#pragma once

#include "absl/status/status.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/experts/expert_tables.h"
#include "kernels/cuda/packed/packed_matrices.h"
#include "kernels/cuda/packed/packed_scratch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class PackedExperts {
 public:
  // All must outlive the result. most_expanded_bytes: of weights that are expanded at a time, if
  // they are not those of one expert.
  PackedExperts(const Stream* stream, PackedMatrices* matrices, ExpertTables* tables,
                bool batch_invariant, int64_t most_expanded_bytes = kMostExpandedBytes)
      : stream_(stream),
        matrices_(matrices),
        tables_(tables),
        batch_invariant_(batch_invariant),
        most_expanded_bytes_(most_expanded_bytes) {}

  // See Ops::ExpertMlp. The matrices of one or both products have parts. UNIMPLEMENTED: the experts
  // differ in their encodings.
  absl::Status Run(const ExpertMlpArgs& args);

 private:
  struct Weights;
  // dtype: of activations, and so of matrices that are not packed
  absl::StatusOr<Weights> WeightsOf(std::span<const Matrix> matrices, DType dtype);
  cudaError_t Multiply(const Weights& weights, GroupedGemmArgs gemm, int32_t most_rows) const;
  static bool SuitPairs(const ExpertMlpArgs& args, const Weights& up, const Weights& down);
  absl::Status RunPairs(const ExpertMlpArgs& args, const Weights& up, const Weights& down);
  // Whether hopper_experts.h computes the call.
  bool SuitTiles(const ExpertMlpArgs& args, const Weights& up, const Weights& down) const;
  absl::Status RunTiles(const ExpertMlpArgs& args, const Weights& up, const Weights& down);
  absl::Status RunExpanded(const ExpertMlpArgs& args, const Weights& up, const Weights& down);

  const Stream* const stream_;
  PackedMatrices* const matrices_;
  ExpertTables* const tables_;
  const bool batch_invariant_;
  const int64_t most_expanded_bytes_;
};

}  // namespace stagecoach::kernels::cuda
