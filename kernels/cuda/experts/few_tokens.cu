#include "kernels/cuda/experts/few_tokens.h"

#include "common/check.h"
#include "kernels/cuda/device/dispatch.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"
#include "kernels/cuda/experts/dot.h"
#include "kernels/cuda/experts/expert_rows.h"

namespace stagecoach::kernels::cuda {
namespace {

// Warps per CTA; below, warps per column of the down projection, and columns per CTA.
constexpr int kUpWarps = 4, kDownWarps = 8;
constexpr int kTeam = 2, kDownColumns = kDownWarps / kTeam;
constexpr int kMostUsed = kWarpThreads;  // experts of a row
// Pairs per expert, from which on too many of them share one.
constexpr int kMostPairsShare = 4;

// The experts of a row, in ascending order. A warp collective.
struct Ranked {
  int32_t expert;  // of pair `lane` of the row
  int rank;        // how many of the row's experts are lower

  __device__ __forceinline__ Ranked(const int32_t* experts, int n_used, int lane)
      : expert(lane < n_used ? LoadPlan(experts + lane) : INT32_MAX), rank(0) {
    for (int i = 0; i < n_used; ++i) {
      rank += __shfl_sync(kAllLanes, expert, i) < expert ? 1 : 0;
    }
  }
};

struct UpParams {
  const void* x;           // [n_tokens, hidden]
  const int32_t* experts;  // [n_tokens, n_used]
  const void* const* up;   // each [2 * width, hidden]; without gates [width, hidden]
  void* activated;         // [n_tokens * n_used, width], a row's pairs in order of their experts
  int32_t n_used, hidden, width;
  Activation activation;
};

// One warp per pair and column of `activated`.
template <typename T, bool kGated>
__global__ void __launch_bounds__(kUpWarps* kWarpThreads, 4) FewTokensUpKernel(const UpParams p) {
  // Pieces of gate and of up, or of up alone, that a lane has in flight.
  constexpr int kTogether = 8;
  WaitForPrevious();
  // The next kernel reads `experts` before it waits.
  LetNextStart();
  const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
  const int32_t row = static_cast<int32_t>(blockIdx.y) / p.n_used;
  const int pair = static_cast<int>(blockIdx.y) % p.n_used;
  const int32_t column = static_cast<int32_t>(blockIdx.x) * kUpWarps + warp;
  if (column >= p.width) return;
  const int32_t n_pieces = p.hidden / kPiece;
  const Ranked ranked(p.experts + int64_t{row} * p.n_used, p.n_used, lane);
  const T* const w = static_cast<const T*>(p.up[__shfl_sync(kAllLanes, ranked.expert, pair)]);
  const int rank = __shfl_sync(kAllLanes, ranked.rank, pair);
  const uint4* const gate = reinterpret_cast<const uint4*>(w + int64_t{column} * p.hidden);
  const uint4* const up = kGated ? gate + int64_t{p.width} * n_pieces : gate;
  const uint4* const x = static_cast<const uint4*>(p.x) + int64_t{row} * n_pieces;
  float gate_sum = 0, up_sum = 0;
  for (int32_t first = lane; first < n_pieces; first += kTogether * kWarpThreads) {
    uint4 of_gate[kTogether], of_up[kTogether], of_x[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      const int32_t piece = first + i * kWarpThreads;
      of_gate[i] = of_up[i] = of_x[i] = uint4{};
      if (piece < n_pieces) {
        if constexpr (kGated) of_gate[i] = LoadOnce(gate + piece);
        of_up[i] = LoadOnce(up + piece);
        of_x[i] = x[piece];
      }
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      if constexpr (kGated) gate_sum = AddProducts<T>(gate_sum, of_gate[i], of_x[i]);
      up_sum = AddProducts<T>(up_sum, of_up[i], of_x[i]);
    }
  }
  if constexpr (kGated) gate_sum = WarpSum(gate_sum);
  up_sum = WarpSum(up_sum);
  if (lane == 0) {
    const float rounded_gate = ToFloat(FromFloat<T>(gate_sum));
    const float rounded_up = ToFloat(FromFloat<T>(up_sum));
    const float activated =
        kGated ? ActivatedBy</*kExact=*/false>(p.activation, rounded_gate) * rounded_up
               : ActivatedBy</*kExact=*/false>(p.activation, rounded_up);
    static_cast<T*>(p.activated)[(int64_t{row} * p.n_used + rank) * p.width + column] =
        FromFloat<T>(activated);
  }
}

struct DownParams {
  const void* activated;    // as in UpParams
  const int32_t* experts;   // [n_tokens, n_used]
  const float* weights;     // [n_tokens, n_used]
  const void* const* down;  // each [hidden, width]
  float* out;               // [n_tokens, hidden]
  int32_t n_used, hidden, width;
};

// kTeam warps per row and column of `out`. The inputs of all experts of a row are one sequence, in
// ascending order of expert id, so that a lane has kTogether loads in flight across experts. The
// first ones are from before the previous kernel is done: it writes only `activated`.
template <typename T>
__global__ void __launch_bounds__(kDownWarps* kWarpThreads, 4)
    FewTokensDownKernel(const DownParams p) {
  constexpr int kTogether = 4;
  constexpr int kTeamThreads = kTeam * kWarpThreads;
  struct Used {
    const uint4* w;  // the first row of its matrix
    float weight;
  };
  __shared__ Used used[kMostUsed];
  __shared__ float sums[kDownWarps];
  LetNextStart();
  const auto thread = static_cast<int32_t>(threadIdx.x);
  const auto row = static_cast<int32_t>(blockIdx.y);
  const int32_t column = static_cast<int32_t>(blockIdx.x) * kDownColumns + thread / kTeamThreads;
  const int32_t n_pieces = p.width / kPiece, n_all_pieces = p.n_used * n_pieces;
  if (thread < kWarpThreads) {
    const int64_t first_pair = int64_t{row} * p.n_used;
    const Ranked ranked(p.experts + first_pair, p.n_used, thread);
    if (thread < p.n_used) {
      used[ranked.rank] = {static_cast<const uint4*>(p.down[ranked.expert]),
                           LoadFreshOne(p.weights + first_pair + thread)};
    }
  }
  __syncthreads();
  const bool is_column = column < p.hidden;
  int32_t turn = is_column ? 0 : p.n_used;     // the expert of the lane's next piece
  int32_t piece = thread % kTeamThreads;       // the next piece
  int32_t piece_of_x = thread % kTeamThreads;  // the next piece of the sequence that is computed
  const auto enter = [&] {
    while (piece >= n_pieces && turn < p.n_used) {
      piece -= n_pieces;
      ++turn;
    }
  };
  uint4 of_w[kTogether];
  float weights[kTogether];
  const auto load = [&] {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      of_w[i] = uint4{};
      weights[i] = 0;
      if (turn < p.n_used) {
        of_w[i] = LoadOnce(used[turn].w + int64_t{column} * n_pieces + piece);
        weights[i] = used[turn].weight;
      }
      piece += kTeamThreads;
      enter();
    }
  };
  enter();
  load();
  WaitForPrevious();
  const int64_t at = int64_t{row} * p.hidden + column;
  const bool writes = is_column && thread % kTeamThreads == 0;
  const float before = writes ? p.out[at] : 0;
  const uint4* const x = static_cast<const uint4*>(p.activated) + int64_t{row} * n_all_pieces;
  float sum = 0;
  for (;;) {
    uint4 of_x[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      of_x[i] = piece_of_x < n_all_pieces ? x[piece_of_x] : uint4{};
      piece_of_x += kTeamThreads;
    }
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      sum += weights[i] * AddProducts<T>(0.0f, of_w[i], of_x[i]);
    }
    if (__any_sync(kAllLanes, turn < p.n_used) == 0) break;
    load();
  }
  sum = WarpSum(sum);
  if (thread % kWarpThreads == 0) sums[thread / kWarpThreads] = sum;
  __syncthreads();
  if (writes) {
    float total = 0;
#pragma unroll
    for (int i = 0; i < kTeam; ++i) total += sums[thread / kWarpThreads + i];
    p.out[at] = before + total;
  }
}

}  // namespace

bool SuitFewTokens(const ExpertMlpArgs& args) {
  const Matrix& down = args.down.front();
  const auto n_pairs = int64_t{args.n_tokens} * args.n_used;
  return IsPlain(args) && args.down_bias == nullptr && down.dtype != DType::kF32 &&
         down.parts.empty() && args.up.front().parts.empty() && down.rows % kPiece == 0 &&
         down.cols % kPiece == 0 && args.n_used <= kMostUsed &&
         (args.n_tokens == 1 ||
          n_pairs * kMostPairsShare <= static_cast<int64_t>(args.down.size()));
}

cudaError_t FewTokensExpertMlp(const Stream& stream, const ExpertMlpArgs& args,
                               const void* const* up, const void* const* down, void* activated) {
  SC_CHECK(SuitFewTokens(args));
  const int32_t hidden = args.down.front().rows, width = args.down.front().cols;
  const UpParams of_up{.x = args.x.data,
                       .experts = args.experts,
                       .up = up,
                       .activated = activated,
                       .n_used = args.n_used,
                       .hidden = hidden,
                       .width = width,
                       .activation = args.kind};
  const DownParams of_down{.activated = activated,
                           .experts = args.experts,
                           .weights = args.weights,
                           .down = down,
                           .out = args.out,
                           .n_used = args.n_used,
                           .hidden = hidden,
                           .width = width};
  const LaunchShape up_shape{.grid = dim3(static_cast<unsigned>(CeilDiv(width, kUpWarps)),
                                          static_cast<unsigned>(args.n_tokens * args.n_used)),
                             .block = kUpWarps * kWarpThreads};
  const LaunchShape down_shape{.grid = dim3(static_cast<unsigned>(CeilDiv(hidden, kDownColumns)),
                                            static_cast<unsigned>(args.n_tokens)),
                               .block = kDownWarps * kWarpThreads};
  const auto launch = [&]<typename T>() {
    const cudaError_t error = args.gated
                                  ? Launch<&FewTokensUpKernel<T, true>>(stream, up_shape, of_up)
                                  : Launch<&FewTokensUpKernel<T, false>>(stream, up_shape, of_up);
    if (error != cudaSuccess) return error;
    return Launch<&FewTokensDownKernel<T>>(stream, down_shape, of_down);
  };
  return args.x.dtype == DType::kBF16 ? launch.template operator()<BF16>()
                                      : launch.template operator()<F16>();
}

}  // namespace stagecoach::kernels::cuda
