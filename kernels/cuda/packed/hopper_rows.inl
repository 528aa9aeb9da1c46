// The kernel of hopper_rows.h. A source file for each type includes it.
//
// A CTA multiplies up to 128 or 256 outputs with up to 128 rows of x. One warp copies packed
// weights into a ring of blocks in shared memory, another one slabs of x (64 inputs) into a second
// ring. The other warpgroups turn codes into operands. The lane that multiplies a pair of inputs
// reads the word that has its codes, which few_rows.h gives to one of four lanes, and rotates it by
// its own place. While the tensor cores multiply one unit, the next one is converted.
//
// CTAs of a cluster may split the inputs. Then each adds the sums of all for its part of the rows,
// always in the same order.
#include <cuda.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/activated.h"
#include "kernels/cuda/hopper/hopper_ptx.h"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/wgmma.h"
#include "kernels/cuda/packed/hopper_operand.h"
#include "kernels/cuda/packed/hopper_rows.h"
#include "kernels/cuda/packed/packed_codes.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr int kMostParts = 8;

struct HopperRowsParams {
  CUtensorMap x;
  FusedProduct fused;
  int32_t n_stages;  // blocks of weights in shared memory
  int32_t n_parts;
  int32_t n_strips;  // packed tiles of y's outputs in a CTA; it has as many of gates besides
};

// kWarpgroups: with 64 outputs each.
template <int kRows_, int kWarpgroups_>
struct RowsTile {
  static constexpr int kRows = kRows_, kWarpgroups = kWarpgroups_;
  static constexpr int kOutputs = 64 * kWarpgroups;
  static constexpr int kMultipliers = kWarpgroups * kWarpgroupThreads;
  static constexpr int kThreads = kMultipliers + kWarpgroupThreads;
  // Registers of a thread that multiplies; those that copy leave theirs.
  static constexpr int kRegisters = kWarpgroups == 2 ? 240 : 112;
  static constexpr int kStrips = kOutputs / kTileRows;  // packed tiles, one of each warp
  static constexpr int kSums = kRows / 2;               // of a thread
  static constexpr int kSlabBytes = kRows * kSlab * 2;
  static constexpr int kSlabs = 8;            // in the ring
  static constexpr int kBarrierBytes = 1024;  // and as many again to align
  static constexpr int kMostStages = 8;
  static constexpr int kSumStride = kOutputs + 4;  // between rows, in floats

  static constexpr int StageBytes(const PackedPart& part) { return kStrips * part.block_bytes(); }
  static int Stages(const Stream& stream, const PackedPart& part) {
    const auto left =
        static_cast<int>(stream.block_shared_bytes) - 2 * kBarrierBytes - kSlabs * kSlabBytes;
    return std::min(kMostStages, left / StageBytes(part));
  }
  static_assert(kRows * kSumStride * 4 <= (200 << 10));
};

// The operand of 64 outputs of which the warp has 16, for the four steps of 16 inputs of unit u of
// a block. kScaled: values are scaled and rounded; else they are codes less zeros.
template <typename Type, typename T, bool kScaled>
__device__ __forceinline__ void Operand(const unsigned char* unit, int lane, int u,
                                        BlockScales<Type, T>& scales, uint32_t (&a)[4][4]) {
  constexpr PackedForm kForm = Type::kForm;
  constexpr bool kHasHalves = HasHalfScales(kForm);
  const int first = lane / 4 * 4, c = lane % 4;
  // Steps of a chunk, first and last 8 inputs of a step.
  UnitCodes<kForm, T> codes[2][2];
#pragma unroll
  for (int step = 0; step < 2; ++step) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      codes[step][half].Load(unit, first + (kHasHalves ? c / 2 + 2 * half : 2 * step + half));
      codes[step][half].Turn(kHasHalves ? 2 * step + c % 2 : c);
    }
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (scales.Begins(2 * u + j)) scales.Enter(2 * u + j);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int step = i / 4, half = i / 2 % 2, r = i % 2;
      uint32_t pairs[4];
      codes[step][half].template Pairs<!kScaled>(j, r, scales.minus_zero[r], pairs);
      uint32_t pair = pairs[0];
      if constexpr (kScaled) pair = ScaledPair(pair, scales, r, step);
      a[2 * j + step][i % 4] = pair;
    }
  }
}

// Adds the sums of all parts at an address of shared memory.
__device__ __forceinline__ void SumOfParts(uint32_t from, int n_parts, float (&out)[4]) {
  float4 of_parts[kMostParts];
#pragma unroll
  for (int i = 0; i < kMostParts; ++i) {
    of_parts[i] = i >= n_parts  ? float4{}
                  : n_parts > 1 ? ptx::LoadFloatsAt(from, static_cast<uint32_t>(i))
                                : ptx::LoadFloats(from);
  }
#pragma unroll
  for (float& sum : out) sum = 0;
#pragma unroll
  for (const float4& of_part : of_parts) {
    out[0] += of_part.x;
    out[1] += of_part.y;
    out[2] += of_part.z;
    out[3] += of_part.w;
  }
}

// Adds bias and y to four outputs of a row, and stores them. aligned: all four exist or none, and
// they are a vector in memory.
template <typename O>
__device__ __forceinline__ void StoreOutputs(const PackedProduct& p, O* row, int output,
                                             int n_outputs, float (&sums)[4], bool aligned) {
  O* const y = row + output;
  const auto finish = [&](int i, float before) {
    if (p.bias != nullptr) sums[i] += p.bias[output + i];
    sums[i] += before;
  };
  if (aligned) {
    if (output >= n_outputs) return;
    float before[4] = {};
    if (p.add_to_y) LoadFloats<4>(y, before);
#pragma unroll
    for (int i = 0; i < 4; ++i) finish(i, before[i]);
    StoreFloats(sums, y);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (output + i >= n_outputs) return;
    finish(i, p.add_to_y ? ToFloat(y[i]) : 0.0f);
    y[i] = FromFloat<O>(sums[i]);
  }
}

// Grid: parts of the inputs (a cluster), tiles of rows, tiles of outputs.
// kGrouped: codes are multiplied without their scale, and each group's sums are then scaled.
template <typename Type, typename T, typename Tile, bool kGrouped>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    HopperRowsKernel(const __grid_constant__ HopperRowsParams params) {
  constexpr PackedForm kForm = Type::kForm;
  constexpr int kSums = Tile::kSums;
  // Whether there are registers for the next operand beside the one that is multiplied.
  constexpr bool kAhead = Tile::kRegisters - (kGrouped ? 2 : 1) * kSums >= 64;
  extern __shared__ unsigned char dynamic_shared[];
  const FusedProduct& fused = params.fused;
  const PackedProduct& p = fused.product;
  const uint32_t memory = ptx::SharedAddress(dynamic_shared);
  const uint32_t rings = (memory + Tile::kBarrierBytes + 1023) / 1024 * 1024;
  unsigned char* const sums_memory = dynamic_shared + (rings - memory);
  unsigned char* const weights_memory = sums_memory + Tile::kSlabs * Tile::kSlabBytes;
  const auto barrier = [&](int i) { return memory + static_cast<uint32_t>(i) * 8; };
  const auto slab_filled = [&](int i) { return barrier(i); };
  const auto slab_emptied = [&](int i) { return barrier(Tile::kSlabs + i); };
  const auto filled = [&](int i) { return barrier(2 * Tile::kSlabs + i); };
  const auto emptied = [&](int i) { return barrier(2 * Tile::kSlabs + Tile::kMostStages + i); };
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads, lane = thread % kWarpThreads;
  constexpr int kMultipliers = Tile::kMultipliers;
  constexpr int kMultiplierWarps = kMultipliers / kWarpThreads;
  if (thread == 0) {
    ptx::PrefetchMap(&params.x);
    for (int i = 0; i < Tile::kSlabs; ++i) {
      ptx::InitBarrier(slab_filled(i), 1);
      ptx::InitBarrier(slab_emptied(i), kMultiplierWarps);
    }
    for (int i = 0; i < params.n_stages; ++i) {
      ptx::InitBarrier(filled(i), 1);
      ptx::InitBarrier(emptied(i), kMultiplierWarps);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();

  const int part = static_cast<int>(blockIdx.x), n_parts = params.n_parts;
  const int first_row = static_cast<int>(blockIdx.y) * Tile::kRows;
  const int strips_of_y = params.n_strips;
  const int first_strip = static_cast<int>(blockIdx.z) * strips_of_y;
  const int n_blocks = p.w.n_blocks();
  const int first_block = part * n_blocks / n_parts, last_block = (part + 1) * n_blocks / n_parts;
  const int block_bytes = p.w.header_bytes + kBlockUnits * UnitBytes(kForm);
  const int stage_bytes = Tile::kStrips * block_bytes;

  if (warp >= kMultiplierWarps) {
    ptx::GiveBackRegisters<24>();
    if (warp == kMultiplierWarps) {
      // The strip of this lane. Behind the gates' strips are those of what they gate.
      const int n_tiles_of_y = p.w.n_tiles() / (fused.is_gated ? 2 : 1);
      const int strip = first_strip + lane % strips_of_y;
      const bool copies = lane < strips_of_y * (fused.is_gated ? 2 : 1) && strip < n_tiles_of_y;
      const int n_strips = __popc(__ballot_sync(kAllLanes, copies));
      const unsigned char* const from =
          p.w.tiles + (lane < strips_of_y ? strip : n_tiles_of_y + strip) * p.w.tile_bytes();
      const uint32_t to =
          ptx::SharedAddress(weights_memory) + static_cast<uint32_t>(lane * block_bytes);
      RingTurn turn;
      for (int block = first_block; block < last_block; ++block) {
        ptx::Wait(emptied(turn.at), turn.parity ^ 1);
        if (lane == 0) {
          ptx::ArriveAndExpect(filled(turn.at), static_cast<uint32_t>(n_strips * block_bytes));
        }
        __syncwarp();
        if (copies) {
          ptx::CopyBytes(to + static_cast<uint32_t>(turn.at * stage_bytes),
                         from + int64_t{block} * block_bytes, static_cast<uint32_t>(block_bytes),
                         filled(turn.at));
        }
        turn.Next(params.n_stages);
      }
    } else if (warp == kMultiplierWarps + 1 && lane == 0) {
      WaitForPrevious();
      LetNextStart();
      RingTurn turn;
      for (int slab = first_block * kBlockUnits; slab < last_block * kBlockUnits; ++slab) {
        ptx::Wait(slab_emptied(turn.at), turn.parity ^ 1);
        ptx::ArriveAndExpect(slab_filled(turn.at), Tile::kSlabBytes);
        ptx::CopyBox(rings + static_cast<uint32_t>(turn.at * Tile::kSlabBytes), &params.x,
                     {0, first_row, slab, 0}, slab_filled(turn.at));
        turn.Next(Tile::kSlabs);
      }
    }
    __syncwarp();
    // As the other warps do.
    if (n_parts > 1) {
      ptx::SyncCluster();
      ptx::SyncCluster();
    }
  } else {
    ptx::TakeRegisters<Tile::kRegisters>();
    float sums[kSums] = {};
    float group[kGrouped ? kSums : 1] = {};
    float group_scales[2] = {};
    // Adds the sums of a group, which nothing is multiplied for meanwhile.
    const auto end_group = [&] {
      if constexpr (kGrouped) {
        FenceAccumulators(group);
#pragma unroll
        for (int i = 0; i < kSums; ++i) sums[i] += group_scales[i / 2 % 2] * group[i];
      }
    };
    RingTurn turn, slab;
    int block = first_block, used_slab = -1;
    do {
      ptx::Wait(filled(turn.at), turn.parity);
      const unsigned char* const weights =
          weights_memory + turn.at * stage_bytes + warp * block_bytes;
      BlockScales<Type, T> scales(p.w, weights, lane / 4);
#pragma unroll
      for (int u = 0; u < kBlockUnits; ++u) {
        if constexpr (!kAhead) WaitForWgmma<0>();
        uint32_t a[4][4];
        Operand<Type, T, !kGrouped>(weights + p.w.header_bytes + u * UnitBytes(kForm), lane, u,
                                    scales, a);
        if (u + 1 == kBlockUnits) {
          __syncwarp();
          if (lane == 0) ptx::Arrive(emptied(turn.at));
        }
        ptx::Wait(slab_filled(slab.at), slab.parity);
        WaitForWgmma<0>();
        if (lane == 0 && used_slab >= 0) ptx::Arrive(slab_emptied(used_slab));
        used_slab = slab.at;
        const bool begins = kGrouped && scales.Begins(2 * u);
        if (begins) {
          end_group();
          group_scales[0] = scales.scale[0][0];
          group_scales[1] = scales.scale[1][0];
        }
        const uint64_t x = WgmmaMatrix(rings + static_cast<uint32_t>(slab.at * Tile::kSlabBytes));
        const auto multiply = [&](auto& to) {
          FenceAccumulators(to);
          FenceOperand(a);
          BeginWgmma();
#pragma unroll
          for (int i = 0; i < kSlab / 16; ++i) {
            WgmmaFromRegisters<T>(to, a[i], x + i * kWgmmaStep, !begins || i > 0);
          }
          CommitWgmma();
          FenceAccumulators(to);
        };
        if constexpr (kGrouped) {
          multiply(group);
        } else {
          multiply(sums);
        }
        slab.Next(Tile::kSlabs);
      }
      turn.Next(params.n_stages);
    } while (++block < last_block);
    WaitForWgmma<0>();
    FenceAccumulators(sums);
    end_group();
    // The sums take the place of the rings, which all warpgroups have left now.
    ptx::SyncSome<1, kMultipliers>();
    float* const to = reinterpret_cast<float*>(sums_memory);
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int output = warp * kTileRows + lane / 4 + i / 2 % 2 * 8;
      to[row * Tile::kSumStride + output] = sums[i];
    }
    WaitForPrevious();
    if (n_parts > 1) {
      ptx::SyncCluster();
    } else {
      ptx::SyncSome<1, kMultipliers>();
    }
    const int n_rows = min(Tile::kRows, p.n_rows - first_row);
    const int rows_of_part = (n_rows + n_parts - 1) / n_parts;
    const int begin = part * rows_of_part, end = min(n_rows, begin + rows_of_part);
    const int n_outputs = fused.is_gated ? p.w.rows / 2 : p.w.rows;
    const bool aligned = n_outputs % 4 == 0 && p.y_stride % 4 == 0;
    const int fours = strips_of_y * kTileRows / 4;
    for (int i = thread; i < (end - begin) * fours; i += kMultipliers) {
      const int row = begin + i / fours, of_strips = i % fours * 4;
      const uint32_t from =
          rings + static_cast<uint32_t>((row * Tile::kSumStride + of_strips) * sizeof(float));
      float out[4];
      SumOfParts(from, n_parts, out);
      const int64_t at = int64_t{first_row + row} * p.y_stride;
      const int output = first_strip * kTileRows + of_strips;
      if (fused.is_gated) {
        float gated[4];
        SumOfParts(from + static_cast<uint32_t>(strips_of_y * kTileRows * sizeof(float)), n_parts,
                   gated);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float gate = ToFloat(FromFloat<T>(out[e]));
          out[e] = ActivatedBy</*kExact=*/false>(fused.activation, gate) *
                   ToFloat(FromFloat<T>(gated[e]));
        }
      }
      if (p.y_is_float) {
        StoreOutputs(p, static_cast<float*>(p.y) + at, output, n_outputs, out, aligned);
      } else {
        StoreOutputs(p, static_cast<T*>(p.y) + at, output, n_outputs, out, aligned);
      }
    }
    // Others may still read this CTA's sums.
    if (n_parts > 1) ptx::SyncCluster();
  }
}

// A launch in clusters of n_parts CTAs.
struct ClusterLaunch {
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};

  ClusterLaunch(const Stream& stream, const LaunchShape& shape, int n_parts) {
    attributes[0].id = cudaLaunchAttributeClusterDimension;
    attributes[0].val.clusterDim = {static_cast<unsigned>(n_parts), 1, 1};
    attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[1].val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = dim3(static_cast<unsigned>(n_parts), shape.grid.y, shape.grid.z);
    config.blockDim = shape.block;
    config.dynamicSmemBytes = shape.shared_bytes;
    config.stream = stream.handle;
    config.attrs = attributes;
    config.numAttrs = stream.overlaps ? 2 : 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
};

// Clusters of n_parts CTAs that the device runs at once.
template <auto kKernel>
int MostClusters(const Stream& stream, const LaunchShape& shape, int n_parts) {
  static int of_device[kMostParts + 1] = {};  // one device per process
  int& most = of_device[n_parts];
  const ClusterLaunch launch(stream, shape, n_parts);
  if (most == 0 && cudaOccupancyMaxActiveClusters(&most, kKernel, &launch.config) != cudaSuccess) {
    most = 1;
  }
  return std::max(1, std::min(most, stream.n_multiprocessors / n_parts));
}

// Chooses n_parts, unless it is set, and n_strips: as many clusters as run at once, for as few
// turns as possible, and all with as many outputs. Returns clusters per tile of rows.
template <typename Tile, typename MostClusters>
int64_t ShareOut(const MostClusters& most_clusters, HopperRowsParams& params) {
  // Time to start and to end, and for each part to add, in blocks.
  constexpr double kFixed = 4, kOfPart = 0.25;
  const PackedPart& w = params.fused.product.w;
  const int n_halves = params.fused.is_gated ? 2 : 1;
  const int64_t n_strips = w.n_tiles() / n_halves;
  const int64_t n_row_tiles = CeilDiv(params.fused.product.n_rows, Tile::kRows);
  const int64_t fewest = n_row_tiles * CeilDiv(n_strips, Tile::kStrips / n_halves);
  const auto turns = [&](int n_parts) { return CeilDiv(fewest, most_clusters(n_parts)); };
  if (params.n_parts == 0) {
    double best_cost = 0;
    for (int n = 1; n <= std::min(kMostParts, w.n_blocks()); ++n) {
      const double cost = static_cast<double>(turns(n)) *
                          (static_cast<double>(CeilDiv(w.n_blocks(), n)) + kFixed + kOfPart * n);
      if (params.n_parts != 0 && cost >= best_cost) continue;
      params.n_parts = n;
      best_cost = cost;
    }
  }
  const int64_t n_clusters = turns(params.n_parts) * most_clusters(params.n_parts) / n_row_tiles;
  params.n_strips = static_cast<int32_t>(CeilDiv(n_strips, std::min(n_strips, n_clusters)));
  return CeilDiv(n_strips, params.n_strips);
}

template <typename Type, typename T, typename Tile>
cudaError_t LaunchHopperRows(const Stream& stream, HopperRowsParams& params, LaunchShape& shape) {
  constexpr bool kGrouped = Type::kGroupShift >= 2;
  constexpr auto kKernel = &HopperRowsKernel<Type, T, Tile, kGrouped>;
  static const cudaError_t allowed = cudaFuncSetAttribute(
      kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shape.shared_bytes));
  if (allowed != cudaSuccess) return allowed;
  shape.grid.z = static_cast<unsigned>(ShareOut<Tile>(
      [&](int n_parts) { return MostClusters<kKernel>(stream, shape, n_parts); }, params));
  const ClusterLaunch launch(stream, shape, params.n_parts);
  return cudaLaunchKernelEx(&launch.config, kKernel, params);
}

template <typename T, typename Tile>
cudaError_t RunHopperRows(const Stream& stream, const FusedProduct& fused, int32_t n_parts) {
  const PackedProduct& product = fused.product;
  HopperRowsParams params{
      .x = {}, .fused = fused, .n_stages = Tile::Stages(stream, product.w), .n_parts = n_parts};
  if (params.n_stages < 2) return cudaErrorInvalidValue;
  constexpr DType kDType = std::is_same_v<T, BF16> ? DType::kBF16 : DType::kF16;
  const cudaError_t error = MakeTensorMap({product.x, kDType}, {1, product.n_rows, product.w.cols},
                                          {.rows = Tile::kRows}, &params.x);
  if (error != cudaSuccess) return error;
  LaunchShape shape{.grid = dim3(1, static_cast<unsigned>(CeilDiv(product.n_rows, Tile::kRows))),
                    .block = Tile::kThreads,
                    .shared_bytes = stream.block_shared_bytes};
  return WithPackedType(product.w, [&](auto type) {
    return LaunchHopperRows<decltype(type), T, Tile>(stream, params, shape);
  });
}

template <typename T>
cudaError_t HopperRows(const Stream& stream, const FusedProduct& fused, const HopperRowsWay& way) {
  switch (way.tile_rows) {
    case 32:
      return RunHopperRows<T, RowsTile<32, 4>>(stream, fused, way.n_parts);
    case 64:
      return RunHopperRows<T, RowsTile<64, 4>>(stream, fused, way.n_parts);
    default:
      return RunHopperRows<T, RowsTile<128, 2>>(stream, fused, way.n_parts);
  }
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
