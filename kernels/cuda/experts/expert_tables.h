// What kernels need to know about the matrices of a layer's experts: their addresses, and their
// tensor maps where the device has grouped GEMMs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/launch.h"
#include "kernels/op_args.h"

namespace stagecoach::kernels::cuda {

class ExpertTables {
 public:
  // Copies host memory, which may be reused on return, to the device.
  using Upload = std::function<absl::Status(const void* host, void* device, size_t bytes)>;

  // `stream` must outlive the result.
  ExpertTables(const Stream* stream, Upload upload) : stream_(stream), upload_(std::move(upload)) {}

  // The table of the matrices, in device memory: their addresses, then, aligned to kTensorMapBytes,
  // their maps. Makes it on the first call for the same matrices. That is when a layer's experts
  // first run, in the profiling step, and so never during stream capture.
  absl::StatusOr<const void* const*> TableOf(std::span<const Matrix> matrices);

 private:
  const Stream* const stream_;
  const Upload upload_;
  // Keyed by all addresses, rows and columns: a later model may get the addresses of a freed model
  // in another order, and for other shapes.
  std::map<std::vector<std::tuple<const void*, int32_t, int32_t>>, Buffer> tables_;
};

// The tensor maps in a table of `n_matrices`, if they have any.
const void* ExpertTableMaps(const void* const* table, size_t n_matrices);

}  // namespace stagecoach::kernels::cuda
