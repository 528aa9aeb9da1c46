// Ops::Gemm on the GPU. It autotunes: during a rehearsal (see Ops::Rehearse) it times all available
// kernels for each shape and number of rows, and keeps the fastest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/fp8/fp8_gemm.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct GemmOptions {
  // Use one order of additions for any number of rows: a row's result does not depend on other
  // rows.
  bool batch_invariant = false;
};

class Gemms {
 public:
  // `stream` must outlive the result.
  static absl::StatusOr<std::unique_ptr<Gemms>> Create(const Stream* stream,
                                                       const GemmOptions& options);
  virtual ~Gemms() = default;

  // The library that multiplies, with its version; part of Ops::Numerics().
  virtual std::string Numerics() const = 0;

  // See Ops::Gemm. x and w have the same dtype; y has that dtype or float32. A bias requires a
  // float32 y.
  virtual absl::Status Run(const GemmArgs& args) = 0;
  // The same for codes of inputs and weights. REQUIRES: MultipliesInFp8
  virtual absl::Status RunFp8(const Fp8GemmArgs& args) = 0;
  // Ops::GemmActivate in one kernel. Returns false, without doing anything, if no such kernel is
  // faster than Run followed by the activation.
  virtual absl::StatusOr<bool> RunGated(const GemmArgs& gemm, const ActivationArgs& activation) = 0;
  virtual absl::StatusOr<bool> RunGatedFp8(const Fp8GemmArgs& gemm,
                                           const ActivationArgs& activation) = 0;
  // While tuning is on, these may run each candidate several times, which leaves y
  // undefined, and remember the fastest.
  virtual absl::Status SetTuning(bool on) = 0;
  // See Ops::Tuning and Ops::UseTuning.
  virtual std::string Choices() const = 0;
  virtual absl::Status UseChoices(std::string_view bytes) = 0;
};

}  // namespace stagecoach::kernels::cuda
