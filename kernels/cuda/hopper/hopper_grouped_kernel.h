// The kernel of hopper_grouped.h: that of hopper_gemm_kernel.h, with tiles of rows from a list in
// device memory and a tensor map for each matrix.
#pragma once

#include <cuda.h>

#include <type_traits>
#include <utility>

#include "kernels/cuda/device/scratch_layout.h"
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
  int32_t tile_rows;  // <= 64; the MMA reads a warpgroup's 64, and the others' results are dropped
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

// The work of a CTA at a time: a tile of rows and a tile of outputs. Tiles of a run that have the
// same outputs come one after the other, so that they read their weights at about the same time.
struct GroupedUnit {
  int matrix;
  int row, end;  // in the sorted rows
  int output;

  __device__ __forceinline__ GroupedUnit(const RowTile& tile, int unit, int n_across, int tile_rows,
                                         int tile_outputs) {
    const int within = unit - tile.first_tile * n_across;
    const int n_down = (tile.n_rows + tile_rows - 1) / tile_rows;
    const int first = within % n_down * tile_rows;
    matrix = tile.matrix;
    row = tile.first_row + first;
    end = row + min(tile_rows, tile.n_rows - first);
    output = within / n_down * tile_outputs;
  }
};

template <typename T, typename Tile>
__global__ void __cluster_dims__(1, 1, 1) __launch_bounds__(Tile::kThreads, 1)
    HopperGroupedKernel(const __grid_constant__ HopperGroupedParams p) {
  constexpr int kCopier = kWarpgroupThreads;  // the thread that issues copies
  static_assert(Tile::kWarpgroups == 1 && Tile::kBlocks == 1 && Tile::kSlabs == 1);
  static_assert(Tile::kOutputs % kMatrixBoxRows == 0);
  extern __shared__ unsigned char dynamic_shared[];
  const uint32_t memory = ptx::SharedAddress(dynamic_shared);
  const uint32_t stages = (memory + Tile::kBarrierBytes + 1023) / 1024 * 1024;
  const auto filled = [&](int stage) { return memory + static_cast<uint32_t>(stage) * 16; };
  const auto emptied = [&](int stage) { return memory + static_cast<uint32_t>(stage) * 16 + 8; };
  const int thread = static_cast<int>(threadIdx.x);
  const int n_stages = p.n_stages;
  const int input_bytes = p.tile_rows * Tile::kRowBytes;
  if (thread == 0) {
    ptx::PrefetchMap(&p.x);
    for (int i = 0; i < n_stages; ++i) {
      ptx::InitBarrier(filled(i), 1);
      ptx::InitBarrier(emptied(i), 1);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();

  const int n_across = (p.n_outputs + Tile::kOutputs - 1) / Tile::kOutputs;
  const int n_steps = p.cols / kSlab;
  const int first_unit = static_cast<int>(blockIdx.x), n_blocks = static_cast<int>(gridDim.x);
  const auto n_all_units = [&] { return LoadPlan(p.n_tiles) * n_across; };
  const auto load_tile = [&](int unit) { return LoadPlan(p.tiles + unit / n_across); };
  const auto unit_of = [&](const RowTile& tile, int unit) {
    return GroupedUnit(tile, unit, n_across, p.tile_rows, Tile::kOutputs);
  };

  if (thread >= kCopier) {
    if (thread == kCopier) {
      const auto inputs = [&](int stage) {
        return stages + static_cast<uint32_t>(stage * p.stage_bytes);
      };
      const auto announce = [&](int stage) {
        ptx::ArriveAndExpect(filled(stage),
                             static_cast<uint32_t>(input_bytes + Tile::kWeightSlabBytes));
      };
      const auto copy_inputs = [&](const GroupedUnit& unit, int step, int stage) {
        ptx::CopyBox(inputs(stage), &p.x, {0, unit.row, step, 0}, filled(stage));
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
        for (int i = 0; i < n_early; ++i) {
          announce(i);
          copy_weights(first, i, i);
        }
      }
      WaitForPrevious();
      LetNextStart();
      StageTurn turn;
      bool is_first = true;
      for (int unit = first_unit; unit < n_units; unit += n_blocks) {
        const GroupedUnit work = unit_of(tile, unit);
        const bool has_next = unit + n_blocks < n_units;
        if (has_next) tile = load_tile(unit + n_blocks);
        for (int step = 0; step < n_steps; ++step) {
          const bool is_early = is_first && step < n_early;
          if (!is_early) {
            ptx::Wait(emptied(turn.stage), turn.parity ^ 1);
            announce(turn.stage);
            copy_weights(work, step, turn.stage);
          }
          copy_inputs(work, step, turn.stage);
          turn.Next(n_stages);
          if (step == 1 && has_next) ptx::PrefetchMap(p.w + tile.matrix);
        }
        is_first = false;
      }
    }
  } else {
    WaitForPrevious();
    LetNextStart();
    const int warp = thread / kWarpThreads, lane = thread % kWarpThreads;
    const auto give_back = [&](int stage) {
      if (thread == 0) ptx::Arrive(emptied(stage));
    };
    float sums[Tile::kWeights / 2];
    StageTurn turn;
    int before = 0;  // the stage of the previous step
    const auto multiply = [&](int step) {
      ptx::Wait(filled(turn.stage), turn.parity);
      const uint32_t stage = stages + static_cast<uint32_t>(turn.stage * p.stage_bytes);
      const uint64_t a = WgmmaMatrix(stage);
      const uint64_t b = WgmmaMatrix(stage + static_cast<uint32_t>(input_bytes));
      FenceAccumulators(sums);
      BeginWgmma();
#pragma unroll
      for (int i = 0; i < kSlab / 16; ++i) {
        Wgmma<T, Tile::kWeights>(sums, a + i * kWgmmaStep, b + i * kWgmmaStep, step > 0 || i > 0);
      }
      CommitWgmma();
      FenceAccumulators(sums);
      WaitForWgmma<1>();
      if (step > 0) give_back(before);
      before = turn.stage;
      turn.Next(n_stages);
    };
    const int n_units = n_all_units();
    RowTile tile{};
    if (first_unit < n_units) tile = load_tile(first_unit);
    for (int unit = first_unit; unit < n_units; unit += n_blocks) {
      const GroupedUnit work = unit_of(tile, unit);
      if (unit + n_blocks < n_units) tile = load_tile(unit + n_blocks);
      for (int step = 0; step < n_steps; ++step) multiply(step);
      WaitForWgmma<0>();
      FenceAccumulators(sums);
      give_back(before);
      HeldTile<T, Tile::kGated, Tile::kSums> results;
      results.Take(sums, work.row + warp * 16 + lane / 4, work.output);
      results.StoreAll(GroupedStore{p.y, work.end, p.n_outputs, p.activation}, lane % 4);
    }
  }
}

}  // namespace stagecoach::kernels::cuda
