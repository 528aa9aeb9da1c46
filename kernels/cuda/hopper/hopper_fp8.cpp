#include "kernels/cuda/hopper/hopper_fp8.h"

#include "kernels/cuda/hopper/hopper_gemm_ways.h"

namespace stagecoach::kernels::cuda {
namespace {

bool Takes(const Stream& stream, const Fp8GemmArgs& args, const void* out) {
  return MultipliesInFp8(stream, args.w) && args.w.cols % 256 == 0 &&
         args.y_stride == args.w.rows && reinterpret_cast<uintptr_t>(out) % 16 == 0;
}

std::span<const HopperGemmWay> WaysTo(DType y) {
  return y == DType::kF32 ? Fp8WaysTo<float>() : Fp8WaysTo<BF16>();
}

}  // namespace

std::vector<int> HopperFp8Ways(const Stream& stream, const Fp8GemmArgs& args) {
  const bool has_y =
      args.y.dtype == DType::kF32 || (args.y.dtype == DType::kBF16 && !args.add_to_y);
  if (!Takes(stream, args, args.y.data) || !has_y) return {};
  return LikeliestHopperWays(stream, WaysTo(args.y.dtype), args.n_rows, args.w.rows,
                             Additions::kAny);
}

int32_t NHopperFp8Ways(const Fp8GemmArgs& args) {
  return static_cast<int32_t>(WaysTo(args.y.dtype).size());
}

cudaError_t HopperFp8(const Stream& stream, const Fp8GemmArgs& args, int way) {
  return WaysTo(args.y.dtype)[static_cast<size_t>(way)].run(
      stream, {.gemm = nullptr, .out = args.y, .activation = Activation::kSilu, .fp8 = &args});
}

std::vector<int> HopperGatedFp8Ways(const Stream& stream, const Fp8GemmArgs& args,
                                    const ActivationArgs& activation) {
  const bool has_kind =
      activation.kind == Activation::kSilu || activation.kind == Activation::kGeluTanh;
  if (!Takes(stream, args, activation.out.data) || !activation.gated ||
      activation.clamped.limit > 0 || !has_kind || args.add_to_y || args.y.dtype != DType::kBF16 ||
      activation.out.dtype != DType::kBF16 || args.w.rows != 2 * activation.width ||
      activation.width % 8 != 0) {
    return {};
  }
  return LikeliestHopperWays(stream, GatedFp8Ways(), args.n_rows, activation.width,
                             Additions::kAny);
}

int32_t NHopperGatedFp8Ways() { return static_cast<int32_t>(GatedFp8Ways().size()); }

cudaError_t HopperGatedFp8(const Stream& stream, const Fp8GemmArgs& args,
                           const ActivationArgs& activation, int way) {
  return GatedFp8Ways()[static_cast<size_t>(way)].run(
      stream,
      {.gemm = nullptr, .out = activation.out, .activation = activation.kind, .fp8 = &args});
}

}  // namespace stagecoach::kernels::cuda
