#include "kernels/cuda/gemm/cublaslt.h"

#include <fmt/format.h>

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kCandidates = 8;
// Cluster size: CTAs of a cluster need neighbouring SMs. If another kernel holds one SM, a whole
// cluster only fits if there are a few spare SMs.
constexpr int32_t kTogether = 8;

}  // namespace

absl::Status ToStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t ToCuda(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

std::vector<cublasLtMatmulAlgo_t> CublasProblem::Candidates(cublasLtHandle_t handle,
                                                            bool batch_invariant) {
  cublasLtMatmulPreferenceOpaque_t preference;
  SC_CHECK(cublasLtMatmulPreferenceInit(&preference) == CUBLAS_STATUS_SUCCESS);
  const uint64_t workspace = kCublasWorkspaceBytes;
  SC_CHECK(
      cublasLtMatmulPreferenceSetAttribute(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace, sizeof(workspace)) == CUBLAS_STATUS_SUCCESS);
  if (batch_invariant) {
    const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
    SC_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference,
                                                  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &none,
                                                  sizeof(none)) == CUBLAS_STATUS_SUCCESS);
  }
  cublasLtMatmulHeuristicResult_t found[kCandidates];
  int n_found = 0;
  // NOT_SUPPORTED means an empty list.
  cublasLtMatmulAlgoGetHeuristic(handle, &desc, &w, &x, &y, &y, &preference, kCandidates, found,
                                 &n_found);
  std::vector<cublasLtMatmulAlgo_t> algos;
  for (int i = 0; i < n_found; ++i) {
    if (found[i].state == CUBLAS_STATUS_SUCCESS) algos.push_back(found[i].algo);
  }
  return algos;
}

std::vector<int32_t> MultiprocessorTargets(const Stream& stream) {
  const int32_t n = stream.n_multiprocessors;
  if (n == stream.n_all_multiprocessors) return {0};
  const int32_t n_even = n / kTogether * kTogether;
  return n_even == 0 || n_even == n ? std::vector{n} : std::vector{n, n_even};
}

}  // namespace stagecoach::kernels::cuda
