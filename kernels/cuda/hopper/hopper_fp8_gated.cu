#include "kernels/cuda/hopper/hopper_fp8_ways.inl"

namespace stagecoach::kernels::cuda {
namespace {

constexpr HopperGemmWay kGatedWays[] = {
    WayOf<BF16, TileShape{.warpgroups = 2, .weights = 128, .gated = true}>(),
    WayOf<BF16, TileShape{.warpgroups = 1, .weights = 224, .gated = true}>(),
    WayOf<BF16, TileShape{.warpgroups = 1, .weights = 128, .gated = true}>(),
};

}  // namespace

std::span<const HopperGemmWay> GatedFp8Ways() { return kGatedWays; }

}  // namespace stagecoach::kernels::cuda
