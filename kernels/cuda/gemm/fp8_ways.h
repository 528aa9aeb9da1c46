// Gemms::RunFp8 and RunGatedFp8: which way to a product is fastest, one of cuBLASLt or one of
// hopper/hopper_fp8.h.
#pragma once

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_gemm.h"
#include "kernels/cuda/gemm/cublaslt.h"
#include "kernels/cuda/gemm/gemm_trial.h"

namespace stagecoach::kernels::cuda {

class Fp8Ways {
 public:
  // All must outlive it.
  Fp8Ways(const Stream* stream, GemmTrial* trial) : stream_(stream), trial_(trial) {}

  // workspace: of kCublasWorkspaceBytes. Both must outlive it.
  void Init(cublasLtHandle_t handle, void* workspace) {
    handle_ = handle;
    workspace_ = workspace;
  }

  // tuning: between Begin and End of the trial
  absl::Status Run(const Fp8GemmArgs& args, bool tuning);
  absl::StatusOr<bool> RunGated(const Fp8GemmArgs& args, const ActivationArgs& activation,
                                bool tuning);

  void AppendTo(std::string* bytes) const;
  // False if `bytes`, whose front this takes, are none of AppendTo.
  bool Take(std::string_view* bytes);

 private:
  struct Key {
    int32_t rows, cols;
    DType y;
    bool add_to_y;
    int32_t n_rows;  // rounded up by RowSizeFor
    int32_t n_multiprocessors;
    auto operator<=>(const Key&) const = default;
  };
  static constexpr int kNoHopper = -1;
  struct Way {
    bool tuned = false;
    int hopper = kNoHopper;         // index in HopperFp8Ways
    int32_t n_multiprocessors = 0;  // this and algo only apply to cuBLASLt
    cublasLtMatmulAlgo_t algo;
  };
  struct GatedWay {
    bool tuned = false;
    int hopper = kNoHopper;  // index in HopperGatedFp8Ways
    // kNoHopper, and raw: cuBLASLt's product of the codes, then Fp8Activate. It is faster than the
    // product with scales, for which cuBLASLt has a single kernel. Neither: the product of Run(),
    // then the activation.
    bool raw = false;
    int32_t n_multiprocessors = 0;  // this and algo only apply to `raw`
    cublasLtMatmulAlgo_t algo;
  };

  Key KeyOf(const Fp8GemmArgs& args) const;

  absl::Status RunWay(const Fp8GemmArgs& args, const Way& way) const;
  absl::Status Multiply(CublasProblem& problem, const Fp8GemmArgs& args,
                        const cublasLtMatmulAlgo_t& algo) const;
  absl::StatusOr<Way> FindWay(const Fp8GemmArgs& args, int32_t n_rows, bool tuning);
  absl::StatusOr<Way> Fastest(const Fp8GemmArgs& args, const std::vector<Way>& ways);
  absl::Status RunGatedWay(const Fp8GemmArgs& args, const ActivationArgs& activation,
                           const GatedWay& way);
  // The first one is product and activation.
  std::vector<GatedWay> GatedWays(const Fp8GemmArgs& args, const ActivationArgs& activation,
                                  int32_t n_rows, bool tuning) const;
  absl::StatusOr<GatedWay> FastestGated(const Fp8GemmArgs& args, const ActivationArgs& activation,
                                        const std::vector<GatedWay>& ways);
  std::vector<float> MediansMs(const Fp8GemmArgs& args,
                               const std::vector<std::function<absl::Status()>>& runs);

  const Stream* const stream_;
  GemmTrial* const trial_;
  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  std::map<Key, Way> ways_;
  std::map<Key, GatedWay> gated_ways_;
};

}  // namespace stagecoach::kernels::cuda
