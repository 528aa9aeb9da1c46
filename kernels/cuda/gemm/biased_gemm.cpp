#include "kernels/cuda/gemm/biased_gemm.h"

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"

namespace stagecoach::kernels::cuda {

absl::Status BiasedGemm(const Stream& stream, Gemms& gemms, const GemmArgs& args) {
  GemmArgs product = args;
  const bool adds_bias = args.bias != nullptr && args.y.dtype != DType::kF32;
  if (adds_bias) product.bias = nullptr;
  SC_RETURN_IF_ERROR(gemms.Run(product));
  if (!adds_bias) return absl::OkStatus();
  return ToStatus(AddBias(stream, args.y, args.bias, args.n_rows, args.w->rows), "Gemm");
}

}  // namespace stagecoach::kernels::cuda
