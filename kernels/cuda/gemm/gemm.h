// Ops::Gemm on the GPU: for each shape and number of rows the fastest of what there is, found out
// by trying while a rehearsal runs (see Ops::Rehearse), and kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

struct GemmOptions {
  // One order of additions for any number of rows: a row's result does not depend on the others.
  bool batch_invariant = false;
};

class Gemms {
 public:
  // `stream` outlives it.
  static absl::StatusOr<std::unique_ptr<Gemms>> Create(const Stream* stream,
                                                       const GemmOptions& options);
  virtual ~Gemms() = default;

  // As Ops::Gemm; x and w of one type, y of that or float32. A bias only with y in float32.
  virtual absl::Status Run(const GemmArgs& args) = 0;
  // As Ops::GemmActivate, by one kernel; false where there is none that is faster than Run and the
  // activation, and nothing was done.
  virtual absl::StatusOr<bool> RunGated(const GemmArgs& gemm, const ActivationArgs& activation) = 0;
  // While on, Run and RunGated may try each way several times over (y is then of no use) and
  // remember.
  virtual absl::Status SetTuning(bool on) = 0;
};

}  // namespace stagecoach::kernels::cuda
