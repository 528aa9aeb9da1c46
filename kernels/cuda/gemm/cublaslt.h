// What the products of cuBLASLt have in common.
#pragma once

#include <cublasLt.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "common/check.h"
#include "common/dtype.h"
#include "kernels/cuda/device/launch.h"

namespace stagecoach::kernels::cuda {

inline constexpr size_t kCublasWorkspaceBytes = size_t{64} << 20;
// cuBLASLt kernels start after the previous kernel has ended; ours start while it ends. Timing
// kernels alone does not show this gain (3 to 7 us in steps of 32 to 256 rows on an H200).
inline constexpr float kLateStartMs = 0.004f;

absl::Status ToStatus(cublasStatus_t status, const char* what);
cudaDataType_t ToCuda(DType dtype);

// A product as cuBLASLt sees it: column-major, so y^T = w x^T.
struct CublasProblem {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t w, x, y;

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    SC_CHECK(cublasLtMatmulDescSetAttribute(&desc, attribute, &value, sizeof(value)) ==
             CUBLAS_STATUS_SUCCESS);
  }
  // In the order of cuBLASLt's own ranking.
  std::vector<cublasLtMatmulAlgo_t> Candidates(cublasLtHandle_t handle, bool batch_invariant);
};

// SM counts to ask cuBLASLt for; 0: all. A kernel with one CTA per SM takes twice its time if
// another kernel holds one of the SMs.
std::vector<int32_t> MultiprocessorTargets(const Stream& stream);

}  // namespace stagecoach::kernels::cuda
