#include "kernels/cuda/gemm/fp8_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/row_sizes.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/fp8/fp8_activate.h"
#include "kernels/cuda/gemm/choice_bytes.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/hopper/hopper_fp8.h"

namespace stagecoach::kernels::cuda {
namespace {

// With more rows, only products of cuBLASLt are tried where there is no activation.
constexpr int32_t kMaxHopperFp8Rows = 512;
// With fewer rows, products with an activation are those of hopper/hopper_fp8.h.
constexpr int32_t kFewestRawRows = 96;

Fp8GemmArgs WithRows(Fp8GemmArgs args, int32_t n_rows) {
  args.n_rows = n_rows;
  return args;
}

// has_scales: the sums are multiplied with the scales of the codes.
CublasProblem ProblemOf(const Fp8GemmArgs& args, int32_t n_rows, int32_t n_multiprocessors,
                        bool has_scales) {
  CublasProblem problem;
  SC_CHECK(cublasLtMatmulDescInit(&problem.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
           CUBLAS_STATUS_SUCCESS);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  problem.Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
  if (n_multiprocessors > 0) problem.Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, n_multiprocessors);
  if (has_scales) {
    const int32_t by_row = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    problem.Set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, by_row);
    problem.Set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, by_row);
    problem.Set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.w.scales);
    problem.Set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.x.scales);
  }
  const auto rows = static_cast<uint64_t>(args.w.rows), cols = static_cast<uint64_t>(args.w.cols);
  const auto n = static_cast<uint64_t>(n_rows);
  const auto layout = [](cublasLtMatrixLayout_t to, cudaDataType_t type, uint64_t inner,
                         uint64_t outer, int64_t stride) {
    SC_CHECK(cublasLtMatrixLayoutInit(to, type, inner, outer, stride) == CUBLAS_STATUS_SUCCESS);
  };
  layout(&problem.w, CUDA_R_8F_E4M3, cols, rows, args.w.cols);
  layout(&problem.x, CUDA_R_8F_E4M3, cols, n, args.w.cols);
  layout(&problem.y, ToCuda(args.y.dtype), rows, n, args.y_stride);
  return problem;
}

}  // namespace

Fp8Ways::Key Fp8Ways::KeyOf(const Fp8GemmArgs& args) const {
  return {args.w.rows,
          args.w.cols,
          args.y.dtype,
          args.add_to_y,
          RowSizeFor(args.n_rows),
          stream_->n_multiprocessors};
}

absl::Status Fp8Ways::Run(const Fp8GemmArgs& args, bool tuning) {
  const Key key = KeyOf(args);
  auto way = ways_.find(key);
  if (way == ways_.end() || (tuning && !way->second.tuned)) {
    SC_ASSIGN_OR_RETURN(const Way found, FindWay(args, key.n_rows, tuning));
    way = ways_.insert_or_assign(key, found).first;
  }
  return RunWay(args, way->second);
}

absl::Status Fp8Ways::RunWay(const Fp8GemmArgs& args, const Way& way) const {
  if (way.hopper != kNoHopper) {
    return ToStatus(HopperFp8(*stream_, args, way.hopper), "a product in FP8 failed");
  }
  CublasProblem problem = ProblemOf(args, args.n_rows, way.n_multiprocessors, /*has_scales=*/true);
  return Multiply(problem, args, way.algo);
}

absl::Status Fp8Ways::Multiply(CublasProblem& problem, const Fp8GemmArgs& args,
                               const cublasLtMatmulAlgo_t& algo) const {
  const float one = 1, beta = args.add_to_y ? 1 : 0;
  return ToStatus(
      cublasLtMatmul(handle_, &problem.desc, &one, args.w.codes, &problem.w, args.x.codes,
                     &problem.x, &beta, args.y.data, &problem.y, args.y.data, &problem.y, &algo,
                     workspace_, kCublasWorkspaceBytes, stream_->handle),
      "a product in FP8 failed");
}

absl::StatusOr<Fp8Ways::Way> Fp8Ways::FindWay(const Fp8GemmArgs& args, int32_t n_rows,
                                              bool tuning) {
  std::vector<Way> ways;
  if (n_rows <= kMaxHopperFp8Rows) {
    for (const int way : HopperFp8Ways(*stream_, WithRows(args, n_rows))) {
      ways.push_back({.tuned = tuning, .hopper = way});
    }
  }
  for (const int32_t target : MultiprocessorTargets(*stream_)) {
    CublasProblem problem = ProblemOf(args, n_rows, target, /*has_scales=*/true);
    for (const cublasLtMatmulAlgo_t& algo :
         problem.Candidates(handle_, /*batch_invariant=*/false)) {
      ways.push_back({.tuned = tuning, .n_multiprocessors = target, .algo = algo});
    }
  }
  if (ways.empty()) {
    return absl::UnimplementedError(
        fmt::format("cuBLASLt has no product in FP8 of {} rows with a matrix of {} x {}",
                    args.n_rows, args.w.rows, args.w.cols));
  }
  return tuning ? Fastest(args, ways) : ways.front();
}

absl::StatusOr<Fp8Ways::Way> Fp8Ways::Fastest(const Fp8GemmArgs& args,
                                              const std::vector<Way>& ways) {
  std::vector<std::function<absl::Status()>> runs;
  for (const Way& way : ways) {
    runs.emplace_back([this, &args, &way] { return RunWay(args, way); });
  }
  std::vector<float> ms = MediansMs(args, runs);
  for (size_t i = 0; i < ways.size(); ++i) {
    if (ways[i].hopper == kNoHopper) ms[i] += kLateStartMs;
  }
  const auto best = std::min_element(ms.begin(), ms.end()) - ms.begin();
  if (std::isinf(ms[static_cast<size_t>(best)])) {
    return absl::InternalError("every way to a product in FP8 failed");
  }
  return ways[static_cast<size_t>(best)];
}

std::vector<float> Fp8Ways::MediansMs(const Fp8GemmArgs& args,
                                      const std::vector<std::function<absl::Status()>>& runs) {
  // What a trial needs to know: the bytes of the inputs, as elements of 16 bits.
  Matrix shape;
  shape.rows = args.w.rows;
  shape.cols = args.w.cols / 2;
  return trial_->MediansMs({.x = {args.x.codes, DType::kBF16},
                            .w = &shape,
                            .bias = nullptr,
                            .y = args.y,
                            .n_rows = args.n_rows,
                            .add_to_y = args.add_to_y},
                           runs);
}

absl::StatusOr<bool> Fp8Ways::RunGated(const Fp8GemmArgs& args, const ActivationArgs& activation,
                                       bool tuning) {
  const Key key = KeyOf(args);
  auto way = gated_ways_.find(key);
  if (way == gated_ways_.end() || (tuning && !way->second.tuned)) {
    const std::vector<GatedWay> ways = GatedWays(args, activation, key.n_rows, tuning);
    if (ways.size() == 1) return false;
    GatedWay found = ways[1];
    if (tuning) {
      SC_ASSIGN_OR_RETURN(found, FastestGated(args, activation, ways));
    }
    way = gated_ways_.insert_or_assign(key, found).first;
  }
  SC_RETURN_IF_ERROR(RunGatedWay(args, activation, way->second));
  return true;
}

absl::Status Fp8Ways::RunGatedWay(const Fp8GemmArgs& args, const ActivationArgs& activation,
                                  const GatedWay& way) {
  if (way.hopper != kNoHopper) {
    return ToStatus(HopperGatedFp8(*stream_, args, activation, way.hopper),
                    "a gated product in FP8 failed");
  }
  if (way.raw) {
    CublasProblem problem =
        ProblemOf(args, args.n_rows, way.n_multiprocessors, /*has_scales=*/false);
    SC_RETURN_IF_ERROR(Multiply(problem, args, way.algo));
    return ToStatus(Fp8Activate(*stream_, activation, args.x.scales, args.w.scales),
                    "an activation failed");
  }
  SC_RETURN_IF_ERROR(Run(args, way.tuned));
  return ToStatus(Activate(*stream_, activation), "an activation failed");
}

std::vector<Fp8Ways::GatedWay> Fp8Ways::GatedWays(const Fp8GemmArgs& args,
                                                  const ActivationArgs& activation, int32_t n_rows,
                                                  bool tuning) const {
  std::vector<GatedWay> ways(1);
  for (const int way : HopperGatedFp8Ways(*stream_, WithRows(args, n_rows), activation)) {
    ways.push_back({.hopper = way});
  }
  if (n_rows >= kFewestRawRows && !args.add_to_y && HasFp8Activate(activation)) {
    for (const int32_t target : MultiprocessorTargets(*stream_)) {
      CublasProblem problem = ProblemOf(args, n_rows, target, /*has_scales=*/false);
      for (const cublasLtMatmulAlgo_t& algo :
           problem.Candidates(handle_, /*batch_invariant=*/false)) {
        ways.push_back({.raw = true, .n_multiprocessors = target, .algo = algo});
      }
    }
  }
  for (GatedWay& way : ways) way.tuned = tuning;
  return ways;
}

absl::StatusOr<Fp8Ways::GatedWay> Fp8Ways::FastestGated(const Fp8GemmArgs& args,
                                                        const ActivationArgs& activation,
                                                        const std::vector<GatedWay>& ways) {
  SC_RETURN_IF_ERROR(Run(args, /*tuning=*/true));  // tunes the plain product
  std::vector<std::function<absl::Status()>> runs;
  for (const GatedWay& way : ways) {
    runs.emplace_back(
        [this, &args, &activation, &way] { return RunGatedWay(args, activation, way); });
  }
  std::vector<float> ms = MediansMs(args, runs);
  for (size_t i = 0; i < ways.size(); ++i) {
    const bool is_late = i == 0 ? ways_.at(KeyOf(args)).hopper == kNoHopper : ways[i].raw;
    if (is_late) ms[i] += kLateStartMs;
  }
  return ways[static_cast<size_t>(std::min_element(ms.begin(), ms.end()) - ms.begin())];
}

void Fp8Ways::AppendTo(std::string* bytes) const {
  AppendBytes(ways_, bytes);
  AppendBytes(gated_ways_, bytes);
}

bool Fp8Ways::Take(std::string_view* bytes) {
  ways_.clear();
  gated_ways_.clear();
  return TakeBytes(bytes, &ways_) && TakeBytes(bytes, &gated_ways_);
}

}  // namespace stagecoach::kernels::cuda
