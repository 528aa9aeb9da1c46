#include <cublasLt.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <vector>

#include "common/check.h"
#include "common/row_sizes.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_trial.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/hopper/hopper_gemm.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{64} << 20;
constexpr int kCandidates = 8;
// Multiprocessors that work together are neighbours: beside one that is taken, a whole set of them
// finds room only where there are a few to spare.
constexpr int32_t kTogether = 8;
// The library's kernels begin when those before them have ended, ours while they end: what that is
// worth does not show when each is timed alone (3 to 7 us in an H200's steps of 32 to 256 rows).
constexpr float kLateStartMs = 0.004f;
// Up to how many rows Hopper's own products are tried: with more the library's are as fast or
// faster, and in one order of additions from fewer on.
constexpr int32_t kMaxHopperRows = 256, kMaxHopperRowsInOrder = 64;
// A way that takes more than so much of the time of a likelier one is no faster.
constexpr float kAsFast = 0.99f;
// Numbers of rows that stand for all when one way is to do for every number.
constexpr int32_t kAnyRows[] = {1, 2, 3, 8, 17, 64, 100, 256, 1000, 4096, 16384};
// Those whose ways are asked for, in turn.
constexpr int32_t kStandardRows[] = {4096, 256, 16, 1};

using cuda::ToStatus;

absl::Status ToStatus(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("cuBLASLt: {}: {}", what, cublasLtGetStatusString(status)));
}

cudaDataType_t ToCuda(DType dtype) {
  return dtype == DType::kF32 ? CUDA_R_32F : dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_16F;
}

// One product as the library sees it: column-major, so y^T = w x^T.
class Problem {
 public:
  // Kernels that stay on their multiprocessors are sized for `n_multiprocessors`; 0: all.
  Problem(const GemmArgs& args, int32_t n_rows, int32_t n_multiprocessors) {
    const auto m = static_cast<uint64_t>(args.w->rows), k = static_cast<uint64_t>(args.w->cols);
    const auto n = static_cast<uint64_t>(n_rows);
    SC_CHECK(cublasLtMatmulDescInit(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
             CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (n_multiprocessors > 0) Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, n_multiprocessors);
    if (args.bias != nullptr) {
      Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
    }
    const auto layout = [](cublasLtMatrixLayout_t to, DType dtype, uint64_t rows, uint64_t cols) {
      SC_CHECK(cublasLtMatrixLayoutInit(to, ToCuda(dtype), rows, cols,
                                        static_cast<int64_t>(rows)) == CUBLAS_STATUS_SUCCESS);
    };
    layout(&w_, args.w->dtype, k, m);
    layout(&x_, args.x.dtype, k, n);
    layout(&y_, args.y.dtype, m, n);
  }

  cublasStatus_t Run(cublasLtHandle_t handle, const GemmArgs& args,
                     const cublasLtMatmulAlgo_t& algo, void* workspace, cudaStream_t stream) {
    const float one = 1, beta = args.add_to_y ? 1 : 0;
    return cublasLtMatmul(handle, &desc_, &one, args.w->buffer.data.get(), &w_, args.x.data, &x_,
                          &beta, args.y.data, &y_, args.y.data, &y_, &algo, workspace,
                          kWorkspaceBytes, stream);
  }

  bool Supports(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo) {
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoCheck(handle, &desc_, &w_, &x_, &y_, &y_, &algo, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kWorkspaceBytes;
  }

  std::vector<cublasLtMatmulAlgo_t> Candidates(cublasLtHandle_t handle, bool batch_invariant) {
    cublasLtMatmulPreferenceOpaque_t preference;
    SC_CHECK(cublasLtMatmulPreferenceInit(&preference) == CUBLAS_STATUS_SUCCESS);
    const uint64_t workspace = kWorkspaceBytes;
    SC_CHECK(cublasLtMatmulPreferenceSetAttribute(
                 &preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace,
                 sizeof(workspace)) == CUBLAS_STATUS_SUCCESS);
    if (batch_invariant) {
      const uint32_t none = CUBLASLT_REDUCTION_SCHEME_NONE;
      SC_CHECK(cublasLtMatmulPreferenceSetAttribute(&preference,
                                                    CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                    &none, sizeof(none)) == CUBLAS_STATUS_SUCCESS);
    }
    cublasLtMatmulHeuristicResult_t found[kCandidates];
    int n_found = 0;
    // NOT_SUPPORTED is an empty list.
    cublasLtMatmulAlgoGetHeuristic(handle, &desc_, &w_, &x_, &y_, &y_, &preference, kCandidates,
                                   found, &n_found);
    std::vector<cublasLtMatmulAlgo_t> algos;
    for (int i = 0; i < n_found; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS) algos.push_back(found[i].algo);
    }
    return algos;
  }

 private:
  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    SC_CHECK(cublasLtMatmulDescSetAttribute(&desc_, attribute, &value, sizeof(value)) ==
             CUBLAS_STATUS_SUCCESS);
  }

  cublasLtMatmulDescOpaque_t desc_;
  cublasLtMatrixLayoutOpaque_t w_, x_, y_;
};

class CublasLtGemms final : public Gemms {
 public:
  CublasLtGemms(const Stream* stream, const GemmOptions& options)
      : stream_(stream), options_(options), trial_(stream) {}
  ~CublasLtGemms() override {
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  absl::Status Init() {
    SC_RETURN_IF_ERROR(ToStatus(cublasLtCreate(&handle_), "cannot start"));
    SC_ASSIGN_OR_RETURN(workspace_, AllocateDevice(kWorkspaceBytes));
    return absl::OkStatus();
  }

  absl::Status Run(const GemmArgs& args) override {
    SC_CHECK(args.bias == nullptr || args.y.dtype == DType::kF32);
    const Key key = KeyOf(args);
    auto way = ways_.find(key);
    if (way == ways_.end() || (tuning_ && !way->second.tuned)) {
      SC_ASSIGN_OR_RETURN(const Way found, FindWay(args, key.n_rows));
      way = ways_.insert_or_assign(key, found).first;
    }
    return RunWay(args, way->second);
  }

  absl::StatusOr<bool> RunGated(const GemmArgs& gemm, const ActivationArgs& activation) override {
    const Key key = KeyOf(gemm);
    const std::vector<int> ways =
        HopperGatedGemmWays(*stream_, WithRows(gemm, key.n_rows), activation);
    if (ways.empty()) return false;
    auto way = gated_ways_.find(key);
    if (way == gated_ways_.end() || (tuning_ && !way->second.tuned)) {
      GatedWay found{.hopper = ways.front(), .tuned = tuning_};
      if (tuning_) {
        SC_ASSIGN_OR_RETURN(found.hopper, FastestGated(gemm, activation, ways));
      }
      way = gated_ways_.insert_or_assign(key, found).first;
    }
    if (way->second.hopper == kNoHopper) return false;
    SC_RETURN_IF_ERROR(ToStatus(HopperGatedGemm(*stream_, gemm, activation, way->second.hopper),
                                "a gated product failed"));
    return true;
  }

  absl::Status SetTuning(bool on) override {
    tuning_ = on;
    return on ? trial_.Begin() : trial_.End();
  }

 private:
  struct Key {
    int32_t rows, cols;
    DType x, y;
    bool add_to_y, bias;
    int32_t n_rows;  // RowSizeFor
    int32_t n_multiprocessors;
    auto operator<=>(const Key&) const = default;
  };
  static constexpr int kNoHopper = -1;
  struct Way {
    bool skinny = false;
    int hopper = kNoHopper;  // of HopperGemmWays
    bool tuned = false;
    int32_t n_multiprocessors = 0;  // as Problem; this and the next of the library's only
    cublasLtMatmulAlgo_t algo;
  };
  struct GatedWay {
    int hopper = kNoHopper;  // of HopperGatedGemmWays, or a product and the activation
    bool tuned = false;
  };

  Key KeyOf(const GemmArgs& args) const {
    return {args.w->rows,
            args.w->cols,
            args.x.dtype,
            args.y.dtype,
            args.add_to_y,
            args.bias != nullptr,
            RowSizeFor(args.n_rows),
            stream_->n_multiprocessors};
  }
  static GemmArgs WithRows(GemmArgs args, int32_t n_rows) {
    args.n_rows = n_rows;
    return args;
  }

  absl::Status RunWay(const GemmArgs& args, const Way& way) {
    if (way.skinny) return ToStatus(SkinnyGemm(*stream_, args), "a product failed");
    if (way.hopper != kNoHopper) {
      return ToStatus(HopperGemm(*stream_, args, way.hopper), "a product failed");
    }
    return ToStatus(Problem(args, args.n_rows, way.n_multiprocessors)
                        .Run(handle_, args, way.algo, workspace_.data.get(), stream_->handle),
                    "a product failed");
  }

  absl::StatusOr<Way> FindWay(const GemmArgs& args, int32_t bucket) {
    if (options_.batch_invariant) return SameOrder(args, bucket);
    std::vector<Way> ways = Ways(args, bucket, Targets());
    if (bucket <= kMaxSkinnyRows && HasSkinnyGemm(args.x.dtype, args.w->dtype, args.w->cols)) {
      ways.insert(ways.begin(), {.skinny = true, .tuned = tuning_});
    }
    if (bucket > kMaxSkinnyRows && bucket <= kMaxHopperRows) {
      // With fewer rows sharing out inputs has never been faster.
      const std::vector<Way> hopper = HopperWays(
          args, bucket, bucket <= kMaxHopperRowsInOrder ? Additions::kInOrder : Additions::kAny);
      ways.insert(ways.end(), hopper.begin(), hopper.end());
    }
    if (ways.empty()) return NoWay(args);
    return tuning_ ? Fastest(args, ways) : ways.front();
  }

  // How many multiprocessors to ask the library for. A kernel of as many blocks as there are
  // multiprocessors takes twice its time where somebody else holds one of them.
  std::vector<int32_t> Targets() const {
    const int32_t n = stream_->n_multiprocessors;
    if (n == stream_->n_all_multiprocessors) return {0};
    const int32_t n_even = n / kTogether * kTogether;
    return n_even == 0 || n_even == n ? std::vector{n} : std::vector{n, n_even};
  }

  std::vector<Way> Ways(const GemmArgs& args, int32_t n_rows,
                        const std::vector<int32_t>& targets) const {
    std::vector<Way> ways;
    const auto add = [&](int32_t target) {
      for (const cublasLtMatmulAlgo_t& algo :
           Problem(args, n_rows, target).Candidates(handle_, options_.batch_invariant)) {
        ways.push_back({.tuned = tuning_, .n_multiprocessors = target, .algo = algo});
      }
    };
    for (const int32_t target : targets) add(target);
    if (ways.empty()) add(0);
    return ways;
  }

  std::vector<Way> HopperWays(const GemmArgs& args, int32_t bucket, Additions additions) const {
    std::vector<Way> ways;
    for (const int way : HopperGemmWays(*stream_, WithRows(args, bucket), additions)) {
      ways.push_back({.hopper = way, .tuned = tuning_});
    }
    return ways;
  }

  static absl::Status NoWay(const GemmArgs& args) {
    return absl::UnimplementedError(
        fmt::format("cuBLASLt has no product of {} rows with a matrix of {} x {}", args.n_rows,
                    args.w->rows, args.w->cols));
  }

  static float LateStartMs(const Way& way) {
    return way.skinny || way.hopper != kNoHopper ? 0 : kLateStartMs;
  }

  absl::StatusOr<Way> Fastest(const GemmArgs& args, const std::vector<Way>& ways) {
    std::vector<std::function<absl::Status()>> runs;
    for (const Way& way : ways) {
      runs.emplace_back([this, &args, &way] { return RunWay(args, way); });
    }
    const std::vector<float> ms = trial_.MediansMs(args, runs);
    size_t best = 0;
    const auto cost = [&](size_t i) { return ms[i] + LateStartMs(ways[i]); };
    for (size_t i = 1; i < ways.size(); ++i) {
      if (cost(i) < kAsFast * cost(best)) best = i;
    }
    if (std::isinf(ms[best])) return absl::InternalError("cuBLASLt: every way to a product failed");
    return ways[best];
  }

  // Of `ways`, or kNoHopper.
  absl::StatusOr<int> FastestGated(const GemmArgs& gemm, const ActivationArgs& activation,
                                   const std::vector<int>& ways) {
    SC_RETURN_IF_ERROR(Run(gemm));  // finds its way
    std::vector<std::function<absl::Status()>> runs = {[&]() -> absl::Status {
      SC_RETURN_IF_ERROR(Run(gemm));
      return ToStatus(Activate(*stream_, activation), "an activation failed");
    }};
    for (const int way : ways) {
      runs.emplace_back([this, &gemm, &activation, way] {
        return ToStatus(HopperGatedGemm(*stream_, gemm, activation, way), "a product failed");
      });
    }
    std::vector<float> ms = trial_.MediansMs(gemm, runs);
    ms.front() += LateStartMs(ways_.at(KeyOf(gemm)));
    const auto best = std::min_element(ms.begin(), ms.end()) - ms.begin();
    return best == 0 ? kNoHopper : ways[static_cast<size_t>(best) - 1];
  }

  // The standard way of a shape does for any number of rows, Hopper's whatever the tile. Every
  // start and every stage has the same standard: not the fastest, nor one for the largest step,
  // which change from trial to trial and from flag to flag. Taken is the fastest of those that give
  // its bits; of few rows Hopper's alone, as one in thousands of 16-bit results tells two orders
  // apart.
  absl::StatusOr<Way> SameOrder(const GemmArgs& args, int32_t bucket) {
    std::vector<Way> same = HopperWays(args, bucket, Additions::kInOrder);
    const bool is_hopper = !same.empty();
    if (!is_hopper) {
      SC_ASSIGN_OR_RETURN(Way standard, LibraryStandard(args));
      standard.tuned = tuning_;
      same.push_back(standard);
    }
    if (!tuning_) return same.front();
    if (is_hopper && bucket <= kMaxHopperRowsInOrder) return Fastest(args, same);
    std::vector<Way> with_its_bits;
    for (const Way& way : Ways(args, bucket, Targets())) {
      if (HasBitsOf(same.front(), way, args, bucket)) with_its_bits.push_back(way);
    }
    // Where the library has such a way, it is faster with many rows.
    if (!is_hopper || with_its_bits.empty()) {
      with_its_bits.insert(with_its_bits.end(), same.begin(), same.end());
    }
    return Fastest(args, with_its_bits);
  }

  // With the fewest and the most rows that the bucket stands for; a way that fails has not.
  bool HasBitsOf(const Way& standard, const Way& way, const GemmArgs& args, int32_t bucket) {
    for (const int32_t n_rows : {FewestRowsOf(bucket), bucket}) {
      const absl::StatusOr<bool> equal = trial_.SameBits(
          WithRows(args, n_rows), [&](const GemmArgs& trial) { return RunWay(trial, standard); },
          [&](const GemmArgs& trial) { return RunWay(trial, way); });
      if (!equal.ok() || !*equal) return false;
    }
    return true;
  }

  absl::StatusOr<Way> LibraryStandard(const GemmArgs& args) {
    const Key shape{args.w->rows,
                    args.w->cols,
                    args.x.dtype,
                    args.y.dtype,
                    args.add_to_y,
                    args.bias != nullptr,
                    0,
                    0};
    auto standard = standards_.find(shape);
    if (standard == standards_.end()) {
      const std::optional<Way> way = WayOfAnyRows(args);
      if (!way) return NoWay(args);
      standard = standards_.emplace(shape, *way).first;
    }
    return standard->second;
  }

  // The first that works of those that the library would take.
  std::optional<Way> WayOfAnyRows(const GemmArgs& args) {
    for (const int32_t n_rows : kStandardRows) {
      for (const Way& way : Ways(args, n_rows, {0})) {
        const auto supports = [&](int32_t rows) {
          return Problem(args, rows, way.n_multiprocessors).Supports(handle_, way.algo);
        };
        if (std::all_of(std::begin(kAnyRows), std::end(kAnyRows), supports) && Works(args, way)) {
          return way;
        }
      }
    }
    return std::nullopt;
  }

  // Some do not for a shape after all.
  bool Works(const GemmArgs& args, const Way& way) {
    return !tuning_ ||
           std::isfinite(trial_.MediansMs(args, {[&] { return RunWay(args, way); }})[0]);
  }

  const Stream* const stream_;
  const GemmOptions options_;
  GemmTrial trial_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  std::map<Key, Way> ways_;
  std::map<Key, GatedWay> gated_ways_;
  std::map<Key, Way> standards_;  // of 0 rows and 0 multiprocessors: for any number of either
  bool tuning_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemms>> Gemms::Create(const Stream* stream,
                                                     const GemmOptions& options) {
  auto gemms = std::make_unique<CublasLtGemms>(stream, options);
  SC_RETURN_IF_ERROR(gemms->Init());
  return gemms;
}

}  // namespace stagecoach::kernels::cuda
