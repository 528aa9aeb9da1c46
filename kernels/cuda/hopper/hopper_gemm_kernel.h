// y = x w^T with TMA (bulk tensor copies) and warpgroup MMAs. The kernel is persistent: the grid
// has one CTA per SM (or one cluster per group of SMs), and each takes tiles of y with a fixed
// stride. One thread of a CTA issues the copies of x and w into a ring of stages. 1 or 2 warpgroups
// multiply 64 rows of x each with the tile's rows of w, 16 inputs after another for every tile
// shape: this fixes the order of additions. Copies for the next tile continue while a tile is
// stored, and the 16-bit results of some tile shapes are stored while the next tile is multiplied
// (hopper_gemm_store.h).
//
// CTAs of a cluster either load shared data for each other (multicast), or split a tile's inputs
// (split-K) and add their sums through distributed shared memory, which is another order of
// additions.
//
// Source: the warp-specialized persistent GEMM design of CUTLASS ("Efficient GEMM in CUDA").
#pragma once

#include <cuda.h>

#include <type_traits>
#include <utility>

#include "kernels/cuda/device/launch.h"
#include "kernels/cuda/hopper/hopper_gemm_store.h"
#include "kernels/cuda/hopper/hopper_ptx.h"
#include "kernels/cuda/hopper/ring_turn.h"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/wgmma.h"

namespace stagecoach::kernels::cuda {

inline constexpr int kWarpgroupRows = 64;

struct TileShape {
  int warpgroups;  // consumer warpgroups, 64 rows of x each
  int weights;     // rows of w; if gated: half gates, half up projections
  int slabs = 1;   // slabs of 64 inputs per stage
  bool gated = false;
  // Cluster shape; at most one of the two exceeds 1. below: CTAs with adjacent row tiles and the
  // same weights; one loads the gates for both, the other the up projections. parts: CTAs that
  // split the inputs of one tile.
  int below = 1, parts = 1;
};

template <TileShape kShape>
struct GemmTile {
  static constexpr int kWarpgroups = kShape.warpgroups, kWeights = kShape.weights,
                       kSlabs = kShape.slabs, kBelow = kShape.below, kParts = kShape.parts;
  static constexpr bool kGated = kShape.gated;

  static constexpr int kBlocks = kBelow * kParts;  // per cluster
  static constexpr int kRows = kWarpgroups * kWarpgroupRows;
  static constexpr int kOutputs = kGated ? kWeights / 2 : kWeights;
  // With one warpgroup, a single extra warp does the copies and registers suffice. Two warpgroups
  // take registers from a third one.
  static constexpr int kThreads =
      kWarpgroups * kWarpgroupThreads + (kWarpgroups == 1 ? kWarpThreads : kWarpgroupThreads);
  static constexpr int kRowBytes = kSlab * 2;
  static constexpr int kWeightSlabBytes = kWeights * kRowBytes;
  static constexpr int kMostBytes = 227 << 10;  // shared memory per CTA
  static constexpr int kBarrierBytes = 1024;    // and as many again to align the stages
  // Sums per thread that a CTA finishes; below, bytes of the sums that it receives from the
  // cluster.
  static constexpr int kSums = kWeights / 2 / kParts;
  static constexpr int kReceivedBytes = (kParts - 1) * kSums * 4 * kWarpgroups * kWarpgroupThreads;
  static constexpr int kRingBytes = kMostBytes - 2 * kBarrierBytes - kReceivedBytes;

  // Tiles of one warpgroup serve few rows, so their stages shrink with the number of rows. With two
  // warpgroups the stage layout is a compile-time constant.
  static constexpr bool kFixedStages = kWarpgroups > 1;
  static constexpr int kInputBytes = kSlabs * kRows * kRowBytes;
  static constexpr int StageBytes(int box_rows) {
    if (kFixedStages) return kInputBytes + kSlabs * kWeightSlabBytes;
    const int bytes = kSlabs * (box_rows * kRowBytes + kWeightSlabBytes);
    // The MMA reads all kRows rows, even if a box has fewer.
    const int read = ((kSlabs - 1) * box_rows + kRows) * kRowBytes;
    return bytes > read ? bytes : read;
  }
  static constexpr int Stages(int box_rows) {
    const int n = kRingBytes / StageBytes(box_rows);
    const int most = kBarrierBytes / 16;
    return n < most ? n : most;
  }
  static_assert(kWarpgroups <= 2 && kBelow <= 2 && kWeights % (16 * kParts) == 0);
  static_assert(kBelow == 1 || kParts == 1);
  static_assert(kGated ? kSlabs == 1 && kParts == 1 : kSlabs <= 2 && kBelow == 1);
  static_assert(Stages(kRows) >= 2);
};

// Rasterization of the tiles of y, in groups of rows, so that concurrent tiles read few rows of x
// and w. A unit is the set of tiles of one cluster.
template <typename Tile>
struct TileOrder {
  static constexpr int kGroup = 2048 / (Tile::kRows * Tile::kBelow);
  int n_down, n_across;

  __host__ __device__ TileOrder(int32_t n_rows, int32_t n_outputs)
      : n_down(static_cast<int>(CeilDiv(n_rows, Tile::kRows * Tile::kBelow))),
        n_across(static_cast<int>(CeilDiv(n_outputs, Tile::kOutputs))) {}
  __host__ __device__ int n_units() const { return n_down * n_across; }

  struct Place {
    int row, output;
  };
  // Position of the tile of CTA `below` in the cluster that has unit `unit`.
  __device__ Place At(int unit, int below) const {
    const int first = unit / (kGroup * n_across) * kGroup;
    const int size = min(kGroup, n_down - first);
    const int within = unit % (kGroup * n_across);
    const int down = (first + within % size) * Tile::kBelow + below;
    return {down * Tile::kRows, within / size * Tile::kOutputs};
  }
};

// Split-K: each CTA of the cluster has the sums over a part of the inputs. It sends every other CTA
// the sums that the other one finishes; a thread sends to the thread with the same index.
template <typename Tile>
struct PartSums {
  static constexpr int kThreads = Tile::kWarpgroups * kWarpgroupThreads;
  static constexpr int kSums = Tile::kSums;
  int part;
  uint32_t received;  // shared address of kReceivedBytes in each CTA
  int thread;

  __device__ __forceinline__ uint32_t Slot(int sender, int i) const {
    return received +
           static_cast<uint32_t>((sender * (kSums / 4) + i) * kThreads + thread) * sizeof(float4);
  }
  __device__ __forceinline__ void Send(const float (&sums)[Tile::kWeights / 2]) const {
#pragma unroll
    for (int to = 0; to < Tile::kParts; ++to) {
      if (to == part) continue;
      const int sender = part - (part > to ? 1 : 0);
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        const float* const four = &sums[to * kSums + 4 * i];
        ptx::StoreAt(Slot(sender, i), static_cast<uint32_t>(to),
                     make_float4(four[0], four[1], four[2], four[3]));
      }
    }
  }
  __device__ __forceinline__ void Own(const float (&sums)[Tile::kWeights / 2],
                                      float (&own)[kSums]) const {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      own[i] = sums[i];
#pragma unroll
      for (int k = 1; k < Tile::kParts; ++k) {
        if (k == part) own[i] = sums[k * kSums + i];
      }
    }
  }
  // Call after all CTAs of the cluster have sent.
  __device__ __forceinline__ void AddReceived(float (&own)[kSums]) const {
#pragma unroll
    for (int sender = 0; sender < Tile::kParts - 1; ++sender) {
#pragma unroll
      for (int i = 0; i < kSums / 4; ++i) {
        const float4 four = ptx::LoadFloats(Slot(sender, i));
        own[4 * i] += four.x;
        own[4 * i + 1] += four.y;
        own[4 * i + 2] += four.z;
        own[4 * i + 3] += four.w;
      }
    }
  }
};

// At most one cluster per unit of the order; with split-K exactly one. T: BF16, F16 or Fp8. FP8
// rows are as 16-bit rows of half as many columns.
template <typename T, typename O, typename Tile>
__global__ void __cluster_dims__(Tile::kBlocks, 1, 1) __launch_bounds__(Tile::kThreads, 1)
    HopperGemmKernel(const __grid_constant__ HopperGemmParams p) {
  constexpr int kCopier = Tile::kWarpgroups * kWarpgroupThreads;  // the thread that issues copies
  constexpr bool kCluster = Tile::kBlocks > 1;
  constexpr auto kAllBlocks = static_cast<uint16_t>((1 << Tile::kBlocks) - 1);
  constexpr bool kToFloat = std::is_same_v<O, float>;
  constexpr bool kFp8 = std::is_same_v<T, Fp8>;
  extern __shared__ unsigned char dynamic_shared[];
  // The kernel after a GEMM with 16-bit results prefetches as much as it can before it waits:
  // attention loads existing keys, the next GEMM its weights. If it starts before this GEMM's
  // inputs are complete, those loads delay the kernel that computes the inputs.
  constexpr bool kLetsNextStartLate = !kToFloat;
  if constexpr (!kLetsNextStartLate) LetNextStart();
  const uint32_t memory = ptx::SharedAddress(dynamic_shared);
  const uint32_t stages = (memory + Tile::kBarrierBytes + 1023) / 1024 * 1024;
  const auto filled = [&](int stage) { return memory + static_cast<uint32_t>(stage) * 16; };
  const auto emptied = [&](int stage) { return memory + static_cast<uint32_t>(stage) * 16 + 8; };
  const int thread = static_cast<int>(threadIdx.x);
  const int block = kCluster ? static_cast<int>(ptx::BlockOfCluster()) : 0;
  const int below = Tile::kBelow > 1 ? block : 0, part = Tile::kParts > 1 ? block : 0;
  if (thread == 0) {
    ptx::PrefetchMap(&p.x);
    ptx::PrefetchMap(&p.w);
    for (int i = 0; i < p.n_stages; ++i) {
      ptx::InitBarrier(filled(i), 1);
      ptx::InitBarrier(emptied(i), Tile::kWarpgroups * Tile::kBelow);
    }
    ptx::FenceBarrierInit();
  }
  if constexpr (kCluster) {
    ptx::SyncCluster();
  } else {
    __syncthreads();
  }

  const TileOrder<Tile> order(p.n_rows, p.n_outputs);
  const int first_unit = static_cast<int>(blockIdx.x) / Tile::kBlocks;
  const int n_clusters = static_cast<int>(gridDim.x) / Tile::kBlocks;
  const int n_all_steps = p.cols / (Tile::kSlabs * kSlab);
  const int first_step = part * n_all_steps / Tile::kParts;
  const int n_steps = (part + 1) * n_all_steps / Tile::kParts - first_step;
  const int input_bytes = Tile::kSlabs * p.box_rows * Tile::kRowBytes;
  const int stage_bytes = Tile::kFixedStages ? Tile::StageBytes(Tile::kRows) : p.stage_bytes;
  const int n_stages = Tile::kFixedStages ? Tile::Stages(Tile::kRows) : p.n_stages;
  const int weights_at = Tile::kFixedStages ? Tile::kInputBytes : input_bytes;

  if (thread >= kCopier) {
    if constexpr (Tile::kWarpgroups > 1) ptx::GiveBackRegisters<40>();
    if (thread == kCopier) {
      const auto inputs = [&](int stage) {
        return stages + static_cast<uint32_t>(stage * stage_bytes);
      };
      const auto announce = [&](int stage) {
        ptx::ArriveAndExpect(
            filled(stage),
            static_cast<uint32_t>(input_bytes + Tile::kSlabs * Tile::kWeightSlabBytes));
      };
      const auto copy_inputs = [&](const auto& place, int step, int stage) {
        const int slab = (first_step + step) * Tile::kSlabs;
        ptx::CopyBox(inputs(stage), &p.x, {0, place.row, slab, 0}, filled(stage));
      };
      const auto copy_weights = [&](const auto& place, int step, int stage) {
        const uint32_t to = inputs(stage) + static_cast<uint32_t>(weights_at);
        const int slab = (first_step + step) * Tile::kSlabs;
        if constexpr (Tile::kBelow == 1) {
          ptx::CopyBox(to, &p.w, {0, place.output, slab, 0}, filled(stage));
        } else {
          // This CTA loads the gates or the up projections for both.
          ptx::CopyBoxToMany(to + static_cast<uint32_t>(below * Tile::kOutputs * Tile::kRowBytes),
                             &p.w, {0, place.output, slab, below}, filled(stage), kAllBlocks);
        }
      };
      // No kernel writes weights, so they fill as many stages as possible before the inputs are
      // ready.
      const int n_early = min(n_stages, n_steps);
      const auto first = order.At(first_unit, below);
      for (int i = 0; i < n_early; ++i) {
        announce(i);
        copy_weights(first, i, i);
      }
      WaitForPrevious();
      if constexpr (kLetsNextStartLate) LetNextStart();
      for (int i = 0; i < n_early; ++i) copy_inputs(first, i, i);
      RingTurn turn;
      for (int i = 0; i < n_early; ++i) turn.Next(n_stages);
      int step = n_early;
      for (int unit = first_unit; unit < order.n_units(); unit += n_clusters) {
        const auto place = order.At(unit, below);
        for (; step < n_steps; ++step) {
          ptx::Wait(emptied(turn.at), turn.parity ^ 1);
          announce(turn.at);
          copy_weights(place, step, turn.at);
          copy_inputs(place, step, turn.at);
          turn.Next(n_stages);
        }
        step = 0;
      }
    }
  } else {
    if constexpr (Tile::kWarpgroups > 1) ptx::TakeRegisters<232>();
    WaitForPrevious();
    if constexpr (kLetsNextStartLate) LetNextStart();
    const int warpgroup = thread / kWarpgroupThreads;
    const int warp = thread / kWarpThreads % 4, lane = thread % kWarpThreads;
    const int lane_of_group = thread % kWarpgroupThreads;
    // Frees the stage in all CTAs that write to it.
    const auto give_back = [&](int stage) {
      if constexpr (Tile::kBelow > 1) {
        if (lane_of_group < Tile::kBelow) {
          ptx::ArriveAt(emptied(stage), static_cast<uint32_t>(lane_of_group));
        }
      } else {
        if (lane_of_group == 0) ptx::Arrive(emptied(stage));
      }
    };
    // Position in y of this lane's first sum.
    const auto first_of_lane = [&](int unit) {
      const auto place = order.At(unit, below);
      return typename TileOrder<Tile>::Place{
          place.row + warpgroup * kWarpgroupRows + warp * 16 + lane / 4,
          place.output + part * (Tile::kOutputs / Tile::kParts)};
    };
    float sums[Tile::kWeights / 2];
    static_assert(!kToFloat || !Tile::kGated);
    // The previous y is loaded early if there are enough registers.
    constexpr bool kLoads = kToFloat && Tile::kSums <= 64;
    float there[Tile::kSums];
    HeldTile<std::conditional_t<kFp8, std::conditional_t<kToFloat, BF16, O>, T>, Tile::kGated,
             Tile::kSums>
        held;
    // Results are held back only for tiles of two warpgroups, where a CTA can have many tiles.
    constexpr bool kHolds = !kToFloat && Tile::kWarpgroups > 1 && Tile::kParts == 1;
    RingTurn turn;
    int before = 0;  // the stage of the previous step
    // FP8: the sums of one step are added to `sums` in float32.
    [[maybe_unused]] float of_step[kFp8 ? Tile::kWeights / 2 : 1];
    // meanwhile() runs while the tensor cores work.
    const auto multiply = [&](int step, const auto& meanwhile) {
      ptx::Wait(filled(turn.at), turn.parity);
      const uint32_t stage = stages + static_cast<uint32_t>(turn.at * stage_bytes);
      if constexpr (kFp8) {
        FenceAccumulators(of_step);
      } else {
        FenceAccumulators(sums);
      }
      BeginWgmma();
#pragma unroll
      for (int s = 0; s < Tile::kSlabs; ++s) {
        const int row = s * p.box_rows + warpgroup * kWarpgroupRows;
        const uint64_t a = WgmmaMatrix(stage + static_cast<uint32_t>(row * Tile::kRowBytes));
        const uint64_t b =
            WgmmaMatrix(stage + static_cast<uint32_t>(weights_at + s * Tile::kWeightSlabBytes));
#pragma unroll
        for (int i = 0; i < kSlab / 16; ++i) {
          if constexpr (kFp8) {
            Wgmma<T, Tile::kWeights>(of_step, a + i * kWgmmaStep, b + i * kWgmmaStep,
                                     s > 0 || i > 0);
          } else {
            Wgmma<T, Tile::kWeights>(sums, a + i * kWgmmaStep, b + i * kWgmmaStep,
                                     step > 0 || s > 0 || i > 0);
          }
        }
      }
      CommitWgmma();
      if constexpr (kFp8) {
        FenceAccumulators(of_step);
        meanwhile();
        WaitForWgmma<0>();
        FenceAccumulators(of_step);
        give_back(turn.at);
        turn.Next(n_stages);
#pragma unroll
        for (int i = 0; i < Tile::kWeights / 2; ++i) {
          sums[i] = step > 0 ? sums[i] + of_step[i] : of_step[i];
        }
      } else {
        FenceAccumulators(sums);
        meanwhile();
        WaitForWgmma<1>();
        if (step > 0) give_back(before);
        before = turn.at;
        turn.Next(n_stages);
      }
    };
    // Scales are loaded before the sums if there are enough registers.
    constexpr bool kEarlyScales = kFp8 && Tile::kSums <= 32;
    [[maybe_unused]] SumScales<Tile::kGated, kFp8 ? Tile::kSums : 4> scales;
    for (int unit = first_unit; unit < order.n_units(); unit += n_clusters) {
      if constexpr (kEarlyScales) {
        const auto [row, output] = first_of_lane(unit);
        scales.Load(p, row, output, lane % 4);
      }
      if constexpr (kLoads) {
        const auto [row, output] = first_of_lane(unit);
        if (p.add_to_y) LoadTile(p, there, row, output, lane % 4);
      }
      int step = 0;
      if constexpr (kHolds) {
        if (held.any) {
          [&]<int... kPiece>(std::integer_sequence<int, kPiece...>) __attribute__((always_inline)) {
            (multiply(kPiece, [&] { held.template Store<kPiece>(p, lane % 4); }), ...);
          }(std::make_integer_sequence<int, held.kPieces>{});
          step = held.kPieces;
        }
      }
      for (; step < n_steps; ++step) multiply(step, [] {});
      if constexpr (!kFp8) {
        WaitForWgmma<0>();
        FenceAccumulators(sums);
        give_back(before);
      }
      const auto [row, output] = first_of_lane(unit);
      if constexpr (Tile::kParts > 1) {
        const auto received = stages + static_cast<uint32_t>(Tile::kRingBytes / 1024 * 1024);
        const PartSums<Tile> parts{part, received, thread};
        float own[Tile::kSums];
        parts.Send(sums);
        parts.Own(sums, own);
        ptx::SyncCluster();
        parts.AddReceived(own);
        if constexpr (kFp8) {
          if constexpr (!kEarlyScales) scales.Load(p, row, output, lane % 4);
          scales.Multiply(own);
        }
        if constexpr (kToFloat) {
          StoreTile<kLoads>(p, own, there, row, output, lane % 4);
        } else {
          held.Take(own, row, output);
          held.StoreAll(p, lane % 4);
        }
        return;
      } else {
        if constexpr (kFp8) {
          if constexpr (!kEarlyScales) scales.Load(p, row, output, lane % 4);
          scales.Multiply(sums);
        }
        if constexpr (kToFloat) {
          StoreTile<kLoads>(p, sums, there, row, output, lane % 4);
        } else {
          held.Take(sums, row, output);
          const bool is_last = unit + n_clusters >= order.n_units();
          if (!kHolds || is_last || n_steps < held.kPieces) held.StoreAll(p, lane % 4);
        }
      }
    }
  }
  // Other CTAs of the cluster may still write to this CTA's shared memory. With split-K, this is
  // the barrier at which the consumer warps wait after they have sent their sums.
  if constexpr (kCluster) {
    __syncwarp();
    ptx::SyncCluster();
  }
}

}  // namespace stagecoach::kernels::cuda
