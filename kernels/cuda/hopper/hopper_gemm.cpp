#include "kernels/cuda/hopper/hopper_gemm.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "kernels/cuda/hopper/hopper_gemm_ways.h"

namespace stagecoach::kernels::cuda {
namespace {

// A tile with fewer rows takes the same time, because loading w dominates.
constexpr int64_t kFewRows = 96;
// Fixed cost of a tile besides its MMAs, expressed in outputs.
constexpr int64_t kTileOutputs = 32;
// Candidates with an estimated cost above this multiple of the best one are not tried.
constexpr double kFarOff = 1.7;

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

bool Takes(const Stream& stream, const GemmArgs& args, const void* out) {
  return stream.is_hopper && args.w->parts.empty() && args.x.dtype == args.w->dtype &&
         args.x.dtype != DType::kF32 && args.w->cols % 128 == 0 && IsAligned(args.x.data) &&
         IsAligned(args.w->buffer.data.get()) && IsAligned(out);
}

std::span<const HopperGemmWay> WaysOf(const GemmArgs& args) {
  return args.x.dtype == DType::kBF16 ? HopperWays<BF16>(args.y.dtype)
                                      : HopperWays<F16>(args.y.dtype);
}
std::span<const HopperGemmWay> GatedWaysOf(DType dtype) {
  return dtype == DType::kBF16 ? HopperGatedWays<BF16>() : HopperGatedWays<F16>();
}

}  // namespace

std::vector<int> LikeliestHopperWays(const Stream& stream, std::span<const HopperGemmWay> ways,
                                     int32_t n_rows, int32_t n_outputs, Additions additions) {
  std::vector<std::pair<int64_t, int>> by_cost;
  for (size_t i = 0; i < ways.size(); ++i) {
    const HopperGemmWay& way = ways[i];
    if (additions == Additions::kInOrder && way.n_parts > 1) continue;
    const int64_t n_units =
        CeilDiv(n_rows, way.n_rows * way.n_below) * CeilDiv(n_outputs, way.n_outputs);
    const int64_t n_turns = CeilDiv(n_units, std::max(1, stream.n_multiprocessors / way.n_blocks));
    by_cost.emplace_back(n_turns * (way.n_weights / way.n_parts + kTileOutputs) *
                             std::max<int64_t>(way.n_rows, kFewRows),
                         static_cast<int>(i));
  }
  std::stable_sort(by_cost.begin(), by_cost.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<int> likeliest;
  for (const auto& [cost, i] : by_cost) {
    if (static_cast<double>(cost) < kFarOff * static_cast<double>(by_cost.front().first)) {
      likeliest.push_back(i);
    }
  }
  return likeliest;
}

std::vector<int> HopperGemmWays(const Stream& stream, const GemmArgs& args, Additions additions) {
  const bool to_float = args.y.dtype == DType::kF32;
  if (!Takes(stream, args, args.y.data) || args.w->rows % 8 != 0 ||
      (!to_float && (args.y.dtype != args.x.dtype || args.add_to_y || args.bias != nullptr))) {
    return {};
  }
  return LikeliestHopperWays(stream, WaysOf(args), args.n_rows, args.w->rows, additions);
}

int32_t NHopperGemmWays(const GemmArgs& args) { return static_cast<int32_t>(WaysOf(args).size()); }

Additions HopperGemmAdditions(const GemmArgs& args, int way) {
  const HopperGemmWay& of = WaysOf(args)[static_cast<size_t>(way)];
  return of.n_parts > 1 ? Additions::kAny : Additions::kInOrder;
}

cudaError_t HopperGemm(const Stream& stream, const GemmArgs& args, int way) {
  return WaysOf(args)[static_cast<size_t>(way)].run(
      stream, {.gemm = &args, .out = args.y, .activation = Activation::kSilu});
}

std::vector<int> HopperGatedGemmWays(const Stream& stream, const GemmArgs& gemm,
                                     const ActivationArgs& activation) {
  const bool has_kind =
      activation.kind == Activation::kSilu || activation.kind == Activation::kGeluTanh;
  if (!Takes(stream, gemm, activation.out.data) || !activation.gated ||
      activation.clamped.limit > 0 || !has_kind || gemm.bias != nullptr || gemm.add_to_y ||
      gemm.y.dtype != gemm.x.dtype || activation.out.dtype != gemm.x.dtype ||
      gemm.w->rows != 2 * activation.width || activation.width % 8 != 0) {
    return {};
  }
  return LikeliestHopperWays(stream, GatedWaysOf(gemm.x.dtype), gemm.n_rows, activation.width,
                             Additions::kInOrder);
}

int32_t NHopperGatedGemmWays(const GemmArgs& gemm) {
  return static_cast<int32_t>(GatedWaysOf(gemm.x.dtype).size());
}

cudaError_t HopperGatedGemm(const Stream& stream, const GemmArgs& gemm,
                            const ActivationArgs& activation, int way) {
  return GatedWaysOf(gemm.x.dtype)[static_cast<size_t>(way)].run(
      stream, {.gemm = &gemm, .out = activation.out, .activation = activation.kind});
}

}  // namespace stagecoach::kernels::cuda
