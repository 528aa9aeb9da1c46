// Decode with results that depend only on a row's own position. Teams of warps process the units if
// there are few sequences, otherwise single warps.
#include "kernels/cuda/attention/attention_decode_team.h"
#include "kernels/cuda/attention/attention_decode_warp.h"

namespace stagecoach::kernels::cuda {
namespace {

template <typename T, int kDim, int kRowTiles>
__global__ void __launch_bounds__(DecodeTeam<T, kDim, kRowTiles>::kThreads, 1)
    TeamDecodeKernel(const AttentionParams p) {
  using Team = DecodeTeam<T, kDim, kRowTiles>;
  const Units units = Units::Of(p, 8 * kRowTiles);
  // With many units (long contexts), one warp per unit keeps memory busier.
  constexpr int32_t kMostTurns = 3;
  if (units.Number() > kMostTurns * static_cast<int32_t>(gridDim.x)) {
    return DecodeByWarps<PlainCache<T, kDim>, kRowTiles, Team::kWarps>(p, units);
  }
  Team{p, units, *reinterpret_cast<typename Team::Memory*>(DynamicShared())}.Run();
}

template <typename T, int kDim, int kRowTiles>
cudaError_t LaunchFixed(const Stream& stream, const AttentionParams& params) {
  if constexpr (HasTeam(kDim)) {
    using Team = DecodeTeam<T, kDim, kRowTiles>;
    const int team_blocks = Team::BlocksIn(stream.block_shared_bytes);
    const int32_t n_passes = params.n_kv_heads * DecodePasses(params.n_heads, params.n_kv_heads);
    if (team_blocks > 0 && HasFewTiles(stream, params.plan.max_decodes, n_passes)) {
      AttentionParams of_teams = params;
      of_teams.team_blocks = team_blocks;
      const LaunchShape shape{.grid = dim3(static_cast<unsigned>(stream.n_multiprocessors)),
                              .block = Team::kThreads,
                              .shared_bytes = Team::Bytes(team_blocks),
                              .n_together = 1};
      return Launch<&TeamDecodeKernel<T, kDim, kRowTiles>>(stream, shape, of_teams);
    }
  }
  return LaunchFixedWarps<PlainCache<T, kDim>, kRowTiles>(stream, params);
}

}  // namespace

cudaError_t FixedDecodeAttention(const Stream& stream, const AttentionParams& params, DType dtype,
                                 int32_t head_dim) {
  return WithHead(dtype, head_dim, [&]<typename T, int kDim>() {
    return DecodeRowTiles(params.n_heads, params.n_kv_heads) == 1
               ? LaunchFixed<T, kDim, 1>(stream, params)
               : LaunchFixed<T, kDim, 2>(stream, params);
  });
}

}  // namespace stagecoach::kernels::cuda
