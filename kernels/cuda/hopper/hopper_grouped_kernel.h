// The kernel of hopper_grouped.h: that of hopper_gemm_kernel.h, with tiles of rows from a list in
// device memory and a tensor map for each matrix.
#pragma once

#include <cuda.h>

#include <type_traits>
#include <utility>

#include "kernels/cuda/device/scratch_layout.h"
#include "kernels/cuda/hopper/grouped_unit.h"
#include "kernels/cuda/hopper/hopper_gemm_kernel.h"
#include "kernels/cuda/hopper/hopper_grouped_ways.h"

namespace stagecoach::kernels::cuda {

struct HopperGroupedParams {
  CUtensorMap x;         // [1, cols / 64, n_rows, 64]; boxes of tile_rows rows
  const CUtensorMap* w;  // for each matrix [1, cols / 64, rows, 64]; boxes of kMatrixBoxRows rows
  const RowTile* tiles;
  const int32_t* n_tiles;
  void* y;  // [n_rows, n_outputs]
  int32_t n_outputs;
  int32_t cols;
  int32_t tile_rows;  // a warpgroup's MMA reads 64, and the results of rows beyond are dropped
  int32_t stage_bytes, n_stages;
  Activation activation;  // if gated
};

// Where a tile's results go, for HeldTile.
struct GroupedStore {
  void* y;
  int32_t n_rows;  // the row after the last one to store
  int32_t n_outputs;
  Activation activation;
};

// kBeside: CTAs of a cluster, which have the same rows and adjacent outputs. Each copies a part of
// the rows for all of them (multicast), because tiles of many rows are bound by L2.
template <typename T, typename Tile, int kBeside>
__global__ void __cluster_dims__(kBeside, 1, 1) __launch_bounds__(Tile::kThreads, 1)
    HopperGroupedKernel(const __grid_constant__ HopperGroupedParams p) {
  constexpr int kCopier = Tile::kWarpgroups * kWarpgroupThreads;  // the thread that issues copies
  constexpr auto kAllBlocks = static_cast<uint16_t>((1 << kBeside) - 1);
  constexpr int kUnitOutputs = Tile::kOutputs * kBeside;
  static_assert(Tile::kBlocks == 1 && Tile::kSlabs == 1 && Tile::kOutputs % kMatrixBoxRows == 0);
  extern __shared__ unsigned char dynamic_shared[];
  const uint32_t memory = ptx::SharedAddress(dynamic_shared);
  const uint32_t stages = (memory + Tile::kBarrierBytes + 1023) / 1024 * 1024;
  const auto filled = [&](int stage) { return memory + static_cast<uint32_t>(stage) * 16; };
  const auto emptied = [&](int stage) { return memory + static_cast<uint32_t>(stage) * 16 + 8; };
  const int thread = static_cast<int>(threadIdx.x);
  const int stage_bytes = Tile::kFixedStages ? Tile::StageBytes(Tile::kRows) : p.stage_bytes;
  const int n_stages = Tile::kFixedStages ? Tile::Stages(Tile::kRows) : p.n_stages;
  const int tile_rows = Tile::kFixedStages ? Tile::kRows : p.tile_rows;
  const int input_bytes = tile_rows * Tile::kRowBytes;
  if (thread == 0) {
    ptx::PrefetchMap(&p.x);
    for (int i = 0; i < n_stages; ++i) {
      ptx::InitBarrier(filled(i), 1);
      ptx::InitBarrier(emptied(i), Tile::kWarpgroups * kBeside);
    }
    ptx::FenceBarrierInit();
  }
  if constexpr (kBeside > 1) {
    ptx::SyncCluster();
  } else {
    __syncthreads();
  }

  const int beside = kBeside > 1 ? static_cast<int>(ptx::BlockOfCluster()) : 0;
  const int n_across = (p.n_outputs + kUnitOutputs - 1) / kUnitOutputs;
  const int n_steps = p.cols / kSlab;
  const int first_unit = static_cast<int>(blockIdx.x) / kBeside;
  const int n_blocks = static_cast<int>(gridDim.x) / kBeside;
  const auto n_all_units = [&] { return LoadPlan(p.n_tiles) * n_across; };
  const auto load_tile = [&](int unit) { return LoadPlan(p.tiles + unit / n_across); };
  const auto unit_of = [&](const RowTile& tile, int unit) {
    GroupedUnit work(tile, unit, n_across, tile_rows, kUnitOutputs);
    work.output += beside * Tile::kOutputs;
    return work;
  };

  if (thread >= kCopier) {
    if constexpr (Tile::kWarpgroups > 1) ptx::GiveBackRegisters<40>();
    if (thread == kCopier) {
      const auto inputs = [&](int stage) {
        return stages + static_cast<uint32_t>(stage * stage_bytes);
      };
      const auto announce = [&](int stage) {
        ptx::ArriveAndExpect(filled(stage),
                             static_cast<uint32_t>(input_bytes + Tile::kWeightSlabBytes));
      };
      const auto copy_inputs = [&](const GroupedUnit& unit, int step, int stage) {
        if constexpr (kBeside == 1) {
          ptx::CopyBox(inputs(stage), &p.x, {0, unit.row, step, 0}, filled(stage));
        } else {
          const int first = beside * (tile_rows / kBeside);
          ptx::CopyBoxToMany(inputs(stage) + static_cast<uint32_t>(first * Tile::kRowBytes), &p.x,
                             {0, unit.row + first, step, 0}, filled(stage), kAllBlocks);
        }
      };
      const auto copy_weights = [&](const GroupedUnit& unit, int step, int stage) {
        const uint32_t to = inputs(stage) + static_cast<uint32_t>(input_bytes);
#pragma unroll
        for (int i = 0; i < Tile::kWeights; i += kMatrixBoxRows) {
          // The second half of a gated tile are the up projections.
          const bool is_up = Tile::kGated && i >= Tile::kOutputs;
          const int row = unit.output + (is_up ? p.n_outputs + i - Tile::kOutputs : i);
          ptx::CopyBox(to + static_cast<uint32_t>(i * Tile::kRowBytes), p.w + unit.matrix,
                       {0, row, step, 0}, filled(stage));
        }
      };
      // The tiles are old, so weights fill as many stages as possible before the inputs are ready.
      const int n_units = n_all_units();
      const int n_early = min(n_stages, n_steps);
      RowTile tile{};
      if (first_unit < n_units) {
        tile = load_tile(first_unit);
        const GroupedUnit first = unit_of(tile, first_unit);
        ptx::AcquireMap(p.w + first.matrix);
        for (int i = 0; i < n_early; ++i) {
          announce(i);
          copy_weights(first, i, i);
        }
      }
      WaitForPrevious();
      LetNextStart();
      RingTurn turn;
      bool is_first = true;
      for (int unit = first_unit; unit < n_units; unit += n_blocks) {
        const GroupedUnit work = unit_of(tile, unit);
        const bool has_next = unit + n_blocks < n_units;
        if (has_next) tile = load_tile(unit + n_blocks);
        for (int step = 0; step < n_steps; ++step) {
          const bool is_early = is_first && step < n_early;
          if (!is_early) {
            ptx::Wait(emptied(turn.at), turn.parity ^ 1);
            announce(turn.at);
            copy_weights(work, step, turn.at);
          }
          copy_inputs(work, step, turn.at);
          turn.Next(n_stages);
          if (step == min(1, n_steps - 1) && has_next && tile.matrix != work.matrix) {
            ptx::AcquireMap(p.w + tile.matrix);
            ptx::PrefetchMap(p.w + tile.matrix);
          }
        }
        is_first = false;
      }
    }
  } else {
    if constexpr (Tile::kWarpgroups > 1) ptx::TakeRegisters<232>();
    WaitForPrevious();
    LetNextStart();
    const int warpgroup = thread / kWarpgroupThreads;
    const int warp = thread / kWarpThreads % 4, lane = thread % kWarpThreads;
    const int thread_of_group = thread % kWarpgroupThreads;
    // All warps of a warpgroup have read a stage when its MMA is done, so one thread speaks for it,
    // to each CTA of the cluster.
    const bool speaks = thread_of_group < kBeside;
    const auto give_back = [&](int stage) {
      if (!speaks) return;
      if constexpr (kBeside == 1) {
        ptx::Arrive(emptied(stage));
      } else {
        ptx::ArriveAt(emptied(stage), static_cast<uint32_t>(thread_of_group));
      }
    };
    float sums[Tile::kWeights / 2];
    HeldTile<T, Tile::kGated, Tile::kSums> held;
    GroupedStore to{p.y, 0, p.n_outputs, p.activation};
    // Only tiles of two warpgroups hold results back. With one, there are few rows, and the stages
    // fill while results are stored.
    constexpr bool kHolds = Tile::kWarpgroups > 1;
    constexpr int kPiecesOfStep = held.kPieces > 8 ? 2 : 1;
    constexpr int kHoldSteps = held.kPieces / kPiecesOfStep;
    RingTurn turn;
    int before = 0;  // the stage of the previous step
    // meanwhile() runs while the tensor cores work.
    const auto multiply = [&](int step, const auto& meanwhile) {
      ptx::Wait(filled(turn.at), turn.parity);
      const uint32_t stage = stages + static_cast<uint32_t>(turn.at * stage_bytes);
      const uint64_t a =
          WgmmaMatrix(stage + static_cast<uint32_t>(warpgroup * kWarpgroupRows * Tile::kRowBytes));
      const uint64_t b = WgmmaMatrix(stage + static_cast<uint32_t>(input_bytes));
      FenceAccumulators(sums);
      BeginWgmma();
#pragma unroll
      for (int i = 0; i < kSlab / 16; ++i) {
        Wgmma<T, Tile::kWeights>(sums, a + i * kWgmmaStep, b + i * kWgmmaStep, step > 0 || i > 0);
      }
      CommitWgmma();
      FenceAccumulators(sums);
      meanwhile();
      WaitForWgmma<1>();
      if (step > 0) give_back(before);
      before = turn.at;
      turn.Next(n_stages);
    };
    // For a warpgroup without rows. Nothing but the MMA keeps the warps of a warpgroup together, so
    // only the threads that speak pass all stages on, and the others wait for them. A warp that is
    // late would otherwise find a stage that has been filled twice, which looks like never.
    const auto pass_stages_on = [&] {
      for (int step = 0; step < n_steps; ++step) {
        if (speaks) {
          ptx::Wait(filled(turn.at), turn.parity);
          give_back(turn.at);
        }
        turn.Next(n_stages);
      }
      __syncwarp();
      ptx::SyncThreads<kWarpgroupThreads>(1 + warpgroup);
    };
    const int n_units = n_all_units();
    RowTile tile{};
    if (first_unit < n_units) tile = load_tile(first_unit);
    for (int unit = first_unit; unit < n_units; unit += n_blocks) {
      const GroupedUnit work = unit_of(tile, unit);
      if (unit + n_blocks < n_units) tile = load_tile(unit + n_blocks);
      const int first_row = work.row + warpgroup * kWarpgroupRows;
      int step = 0;
      if constexpr (kHolds) {
        if (first_row >= work.end) {
          if (held.any) held.StoreAll(to, lane % 4);
          pass_stages_on();
          continue;
        }
        if (held.any) {
          [&]<int... kStep>(std::integer_sequence<int, kStep...>) __attribute__((always_inline)) {
            (multiply(kStep,
                      [&] {
                        held.template Store<kStep * kPiecesOfStep>(to, lane % 4);
                        if constexpr (kPiecesOfStep > 1) {
                          held.template Store<kStep * kPiecesOfStep + 1>(to, lane % 4);
                        }
                      }),
             ...);
          }(std::make_integer_sequence<int, kHoldSteps>{});
          step = kHoldSteps;
        }
      }
      for (; step < n_steps; ++step) multiply(step, [] {});
      WaitForWgmma<0>();
      FenceAccumulators(sums);
      give_back(before);
      held.Take(sums, first_row + warp * 16 + lane / 4, work.output);
      to.n_rows = work.end;
      const bool is_last = unit + n_blocks >= n_units;
      if (!kHolds || is_last || n_steps < kHoldSteps) held.StoreAll(to, lane % 4);
    }
  }
  // Other CTAs of the cluster may still write to this CTA's shared memory.
  if constexpr (kBeside > 1) {
    __syncwarp();
    ptx::SyncCluster();
  }
}

}  // namespace stagecoach::kernels::cuda
