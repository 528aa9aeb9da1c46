#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <compare>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/row_sizes.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/gemm/choice_bytes.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/fp8_ways.h"
#include "kernels/cuda/gemm/gemm.h"
#include "kernels/cuda/gemm/gemm_trial.h"
#include "kernels/cuda/gemm/skinny_gemm.h"
#include "kernels/cuda/hopper/hopper_gemm.h"

namespace stagecoach::kernels::cuda {
namespace {

// Row limits for trying our own Hopper GEMMs. With more rows cuBLASLt is as fast or faster, and
// with a fixed order of additions it is so from fewer rows on.
constexpr int32_t kMaxHopperRows = 256, kMaxHopperRowsInOrder = 64;
// A later candidate must take less than this share of the best time to replace it.
constexpr float kAsFast = 0.99f;
// Numbers of rows to check if one algorithm must work for any number.
constexpr int32_t kAnyRows[] = {1, 2, 3, 8, 17, 64, 100, 256, 1000, 4096, 16384};
// Numbers of rows for which the library is asked for algorithms, in this order.
constexpr int32_t kStandardRows[] = {4096, 256, 16, 1};

class Problem {
 public:
  // Persistent kernels are sized for `n_multiprocessors` SMs; 0: all.
  Problem(const GemmArgs& args, int32_t n_rows, int32_t n_multiprocessors) {
    const auto m = static_cast<uint64_t>(args.w->rows), k = static_cast<uint64_t>(args.w->cols);
    const auto n = static_cast<uint64_t>(n_rows);
    SC_CHECK(cublasLtMatmulDescInit(&problem_.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
             CUBLAS_STATUS_SUCCESS);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    problem_.Set(CUBLASLT_MATMUL_DESC_TRANSA, transposed);
    if (n_multiprocessors > 0)
      problem_.Set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, n_multiprocessors);
    if (args.bias != nullptr) {
      problem_.Set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      problem_.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, args.bias);
    }
    const auto layout = [](cublasLtMatrixLayout_t to, DType dtype, uint64_t rows, uint64_t cols) {
      SC_CHECK(cublasLtMatrixLayoutInit(to, ToCuda(dtype), rows, cols,
                                        static_cast<int64_t>(rows)) == CUBLAS_STATUS_SUCCESS);
    };
    layout(&problem_.w, args.w->dtype, k, m);
    layout(&problem_.x, args.x.dtype, k, n);
    layout(&problem_.y, args.y.dtype, m, n);
  }

  cublasStatus_t Run(cublasLtHandle_t handle, const GemmArgs& args,
                     const cublasLtMatmulAlgo_t& algo, void* workspace, cudaStream_t stream) {
    const float one = 1, beta = args.add_to_y ? 1 : 0;
    return cublasLtMatmul(handle, &problem_.desc, &one, args.w->buffer.data.get(), &problem_.w,
                          args.x.data, &problem_.x, &beta, args.y.data, &problem_.y, args.y.data,
                          &problem_.y, &algo, workspace, kCublasWorkspaceBytes, stream);
  }

  bool Supports(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algo) {
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoCheck(handle, &problem_.desc, &problem_.w, &problem_.x, &problem_.y,
                                   &problem_.y, &algo, &result) == CUBLAS_STATUS_SUCCESS &&
           result.workspaceSize <= kCublasWorkspaceBytes;
  }

  std::vector<cublasLtMatmulAlgo_t> Candidates(cublasLtHandle_t handle, bool batch_invariant) {
    return problem_.Candidates(handle, batch_invariant);
  }

 private:
  CublasProblem problem_;
};

class CublasLtGemms final : public Gemms {
 public:
  CublasLtGemms(const Stream* stream, const GemmOptions& options)
      : stream_(stream), options_(options), trial_(stream), fp8_(stream, &trial_) {}
  ~CublasLtGemms() override {
    if (creating_.valid()) creating_.wait();
    if (handle_ != nullptr) cublasLtDestroy(handle_);
  }

  // The library loads its kernels for longer than a second. Meanwhile the weights can be loaded.
  absl::Status Init() {
    SC_ASSIGN_OR_RETURN(workspace_, AllocateDevice(kCublasWorkspaceBytes));
    int device = 0;
    SC_RETURN_IF_ERROR(ToStatus(cudaGetDevice(&device), "no GPU"));
    creating_ = std::async(std::launch::async, [this, device] {
      return cudaSetDevice(device) == cudaSuccess ? cublasLtCreate(&handle_)
                                                  : CUBLAS_STATUS_NOT_INITIALIZED;
    });
    return absl::OkStatus();
  }

  std::string Numerics() const override { return fmt::format("cublas-{}", cublasLtGetVersion()); }
  absl::Status Run(const GemmArgs& args) override {
    SC_RETURN_IF_ERROR(AwaitLibrary());
    SC_CHECK(args.bias == nullptr || args.y.dtype == DType::kF32);
    const Key key = KeyOf(args);
    auto way = choices_.ways.find(key);
    if (way == choices_.ways.end() || (tuning_ && !way->second.tuned)) {
      SC_ASSIGN_OR_RETURN(const Way found, FindWay(args, key.n_rows));
      way = choices_.ways.insert_or_assign(key, found).first;
    }
    return RunWay(args, way->second);
  }

  absl::Status RunFp8(const Fp8GemmArgs& args) override {
    SC_RETURN_IF_ERROR(AwaitLibrary());
    return fp8_.Run(args, tuning_);
  }

  absl::StatusOr<bool> RunGatedFp8(const Fp8GemmArgs& gemm,
                                   const ActivationArgs& activation) override {
    SC_RETURN_IF_ERROR(AwaitLibrary());
    return fp8_.RunGated(gemm, activation, tuning_);
  }

  absl::StatusOr<bool> RunGated(const GemmArgs& gemm, const ActivationArgs& activation) override {
    SC_RETURN_IF_ERROR(AwaitLibrary());
    const Key key = KeyOf(gemm);
    const std::vector<int> ways =
        HopperGatedGemmWays(*stream_, WithRows(gemm, key.n_rows), activation);
    if (ways.empty()) return false;
    auto way = choices_.gated_ways.find(key);
    if (way == choices_.gated_ways.end() || (tuning_ && !way->second.tuned)) {
      GatedWay found{.hopper = ways.front(), .tuned = tuning_};
      if (tuning_) {
        SC_ASSIGN_OR_RETURN(found.hopper, FastestGated(gemm, activation, ways));
      }
      way = choices_.gated_ways.insert_or_assign(key, found).first;
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

  std::string Choices() const override {
    std::string bytes;
    AppendBytes(cublasLtGetVersion(), &bytes);
    AppendBytes(choices_.ways, &bytes);
    AppendBytes(choices_.gated_ways, &bytes);
    AppendBytes(choices_.standards, &bytes);
    fp8_.AppendTo(&bytes);
    return bytes;
  }

  // An algorithm may be used again with the same version of the library, says its documentation.
  absl::Status UseChoices(std::string_view bytes) override {
    size_t version = 0;
    AllChoices choices;
    if (!TakeBytes(&bytes, &version) || version != cublasLtGetVersion() ||
        !TakeBytes(&bytes, &choices.ways) || !TakeBytes(&bytes, &choices.gated_ways) ||
        !TakeBytes(&bytes, &choices.standards) || !fp8_.Take(&bytes) || !bytes.empty()) {
      return absl::InvalidArgumentError("the tuning is from another build or cuBLASLt");
    }
    choices_ = std::move(choices);
    return absl::OkStatus();
  }

 private:
  absl::Status AwaitLibrary() {
    if (creating_.valid()) {
      created_ = ToStatus(creating_.get(), "cannot start");
      fp8_.Init(handle_, workspace_.data.get());
    }
    return created_;
  }

  struct Key {
    int32_t rows, cols;
    DType x, y;
    bool add_to_y, bias;
    int32_t n_rows;  // rounded up by RowSizeFor
    int32_t n_multiprocessors;
    auto operator<=>(const Key&) const = default;
  };
  static constexpr int kNoHopper = -1;
  struct Way {
    bool skinny = false;
    int hopper = kNoHopper;  // index in HopperGemmWays
    bool tuned = false;
    int32_t n_multiprocessors = 0;  // see Problem; this and algo only apply to cuBLASLt
    cublasLtMatmulAlgo_t algo;
  };
  struct GatedWay {
    int hopper = kNoHopper;  // index in HopperGatedGemmWays; kNoHopper: GEMM, then activation
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
    std::vector<Way> ways = Ways(args, bucket, MultiprocessorTargets(*stream_));
    if (bucket <= kMaxSkinnyRows && HasSkinnyGemm(args.x.dtype, args.w->dtype, args.w->cols)) {
      ways.insert(ways.begin(), {.skinny = true, .tuned = tuning_});
    }
    if (bucket > kMaxSkinnyRows && bucket <= kMaxHopperRows) {
      // With few rows, split-K has never been faster.
      const std::vector<Way> hopper = HopperWays(
          args, bucket, bucket <= kMaxHopperRowsInOrder ? Additions::kInOrder : Additions::kAny);
      ways.insert(ways.end(), hopper.begin(), hopper.end());
    }
    if (ways.empty()) return NoWay(args);
    return tuning_ ? Fastest(args, ways) : ways.front();
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

  // Returns one of `ways`, or kNoHopper.
  absl::StatusOr<int> FastestGated(const GemmArgs& gemm, const ActivationArgs& activation,
                                   const std::vector<int>& ways) {
    SC_RETURN_IF_ERROR(Run(gemm));  // tunes the plain GEMM
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
    ms.front() += LateStartMs(choices_.ways.at(KeyOf(gemm)));
    const auto best = std::min_element(ms.begin(), ms.end()) - ms.begin();
    return best == 0 ? kNoHopper : ways[static_cast<size_t>(best) - 1];
  }

  // In batch-invariant mode every shape has a standard algorithm that works for any number of rows:
  // our Hopper GEMM, whose tiles all give the same bits, or one of cuBLASLt. Every process start
  // and every stage must pick the same standard. So it is neither the fastest one nor one for the
  // largest step, because those change from trial to trial and with flags. The result is the
  // fastest algorithm with the bits of the standard. For few rows only our Hopper GEMMs qualify:
  // two orders of addition differ in only one of thousands of 16-bit results, so a comparison of
  // few rows proves nothing.
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
    for (const Way& way : Ways(args, bucket, MultiprocessorTargets(*stream_))) {
      if (HasBitsOf(same.front(), way, args, bucket)) with_its_bits.push_back(way);
    }
    // If cuBLASLt has an algorithm with these bits, it is faster with many rows.
    if (!is_hopper || with_its_bits.empty()) {
      with_its_bits.insert(with_its_bits.end(), same.begin(), same.end());
    }
    return Fastest(args, with_its_bits);
  }

  // Compares with the fewest and the most rows of the bucket. An algorithm that fails does not
  // qualify.
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
    auto standard = choices_.standards.find(shape);
    if (standard == choices_.standards.end()) {
      const std::optional<Way> way = WayOfAnyRows(args);
      if (!way) return NoWay(args);
      standard = choices_.standards.emplace(shape, *way).first;
    }
    return standard->second;
  }

  // The first algorithm that works, in the order of cuBLASLt's own ranking.
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

  // Some algorithms fail for a shape although the library accepts them.
  bool Works(const GemmArgs& args, const Way& way) {
    return !tuning_ ||
           std::isfinite(trial_.MediansMs(args, {[&] { return RunWay(args, way); }})[0]);
  }

  const Stream* const stream_;
  const GemmOptions options_;
  GemmTrial trial_;
  Fp8Ways fp8_;
  std::future<cublasStatus_t> creating_;  // of handle_; valid until AwaitLibrary
  absl::Status created_;
  cublasLtHandle_t handle_ = nullptr;
  Buffer workspace_;
  struct AllChoices {
    std::map<Key, Way> ways;
    std::map<Key, GatedWay> gated_ways;
    // Keys with n_rows = 0 and n_multiprocessors = 0: valid for any number of either.
    std::map<Key, Way> standards;
  };
  AllChoices choices_;
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
