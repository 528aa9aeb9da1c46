// The kernel of hopper_experts.h. A source file for each type includes it.
//
// CTAs take units of work from the list of tiles (GroupedUnit) until there are none. One warp
// copies packed weights into a ring of blocks in shared memory, another one x into a ring of slabs;
// both go on with the next unit while this one ends. The other warpgroups turn codes into operands,
// 64 outputs each. The inputs of x lie in the order of the lanes (input_order.h). So a lane reads
// its own codes, 16 bytes at a time, and nothing else. While the tensor cores multiply one unit of
// 64 inputs, the next one is converted.
//
// Of a gated product, two warps of each warpgroup have gates, and two have what these gate. So the
// results of a warpgroup are all that its activation needs.
#include <cuda.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/elementwise/gated.h"
#include "kernels/cuda/hopper/grouped_unit.h"
#include "kernels/cuda/hopper/hopper_ptx.h"
#include "kernels/cuda/hopper/tensor_map.h"
#include "kernels/cuda/hopper/wgmma.h"
#include "kernels/cuda/packed/hopper_experts.h"
#include "kernels/cuda/packed/hopper_operand.h"
#include "kernels/cuda/packed/packed_codes.h"

namespace stagecoach::kernels::cuda {
namespace {

struct HopperExpertsParams {
  CUtensorMap x;  // [1, cols / 64, n_rows, 64]; boxes of kRows rows and kSlabUnits slabs
  const void* const* weights;
  int64_t tiles_at;
  PackedPart w;
  const RowTile* tiles;
  const int32_t* n_tiles;
  void* y;            // [n_rows, n_outputs]
  int32_t n_outputs;  // of y
  int32_t n_stages;   // blocks of weights in shared memory
  bool is_gated;
  Activation activation;
  ClampedGlu clamped;
  const float* bias;
  InputOrder y_order;
};

template <int kRows_>
struct ExpertsTile {
  static constexpr int kRows = kRows_, kWarpgroups = kRows > 64 ? 2 : 4;
  static constexpr int kOutputs = 64 * kWarpgroups;
  static constexpr int kMultipliers = kWarpgroups * kWarpgroupThreads;
  static constexpr int kThreads = kMultipliers + kWarpgroupThreads;
  // Registers of a thread that multiplies; those that copy leave theirs.
  static constexpr int kRegisters = kWarpgroups == 2 ? 240 : 112;
  static constexpr int kStrips = kOutputs / kTileRows;  // packed tiles, one of each warp
  static constexpr int kSums = kRows / 2;               // of a thread
  // A slab of x: inputs of some units, which divide a block. Few rows have large slabs, because
  // then instructions are the limit, and each slab takes some to wait for.
  static constexpr int kSlabUnits = kRows > 16 ? 2 : 4;
  static constexpr int kUnitBytes = kRows * kUnitCols * 2;
  static constexpr int kSlabBytes = kSlabUnits * kUnitBytes;
  static constexpr int kSlabs = kRows > 64 ? 2 : kRows > 16 ? 3 : 4;  // in the ring
  static constexpr int kMostStages = 8;
  static constexpr int kBarrierBytes = 1024;  // and as many again to align
  // Results of a warpgroup that wait to be stored. Rows are apart so that lanes find free banks.
  static constexpr int kHeldStride = 64 + 8;
  // Two buffers if they fit: then no warp waits until the results before are stored.
  static constexpr int kHelds = kRows > 16 ? 1 : 2;
  static constexpr int kHeldBytes = kHelds * kRows * kHeldStride * 2;

  static constexpr int kOtherBytes =
      2 * kBarrierBytes + kSlabs * kSlabBytes + kWarpgroups * kHeldBytes;
  static int Stages(const Stream& stream, const PackedPart& part) {
    const int left = static_cast<int>(stream.block_shared_bytes) - kOtherBytes;
    return std::min(kMostStages, left / (kStrips * part.block_bytes()));
  }
  static_assert(2 * kStrips * kMostExpertsBlockBytes + kOtherBytes <= 227 << 10);
};

// How scales are applied. The same for all tiles, so that a row's bits do not depend on them.
enum class Scaling {
  kOfSums,  // codes are multiplied, and the sums of each group are scaled in float32
  kExact,   // values are scaled before; powers of two change no bit of a code
  kRounded  // values are scaled in float32 before, and rounded
};
template <typename Type, typename T>
constexpr Scaling ScalingOf() {
  using enum PackedForm;
  constexpr PackedForm kForm = Type::kForm;
  if (Type::kGroupShift >= 2) return Scaling::kOfSums;
  return kForm == kMxFp4 && kIsBF16<T> ? Scaling::kExact : Scaling::kRounded;
}

// The operand of 64 outputs of which the warp has 16, for the four steps of 16 inputs of unit u of
// a block. kSmall: of MXFP4 with scales below 2. Then one multiplication corrects the bias and
// scales.
template <bool kSmall, typename Type, typename T>
__device__ __forceinline__ void OwnOperand(const unsigned char* unit, int lane, int u,
                                           BlockScales<Type, T>& scales, uint32_t (&a)[4][4]) {
  constexpr Scaling kScaling = ScalingOf<Type, T>();
  UnitCodes<Type::kForm, T> codes;
  codes.Load(unit, lane);
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (!kSmall && scales.Begins(2 * u + j)) scales.Enter(2 * u + j);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (kSmall) {
        const uint32_t factor = scales.FactorOfBits(2 * u + j, r), word = codes.Word4(j, r);
#pragma unroll
        for (int p = 0; p < 4; ++p) {
          a[2 * j + p / 2][p % 2 * 2 + r] = MultiplyPairs<T>(Fp4Bits<T>(word, p), factor);
        }
        continue;
      }
      uint32_t pairs[4];
      codes.template Pairs<kScaling != Scaling::kRounded>(j, r, scales.minus_zero[r], pairs);
      // Both halves of a word: the scale's upper half, which is its bfloat16.
      const uint32_t scale = __byte_perm(__float_as_uint(scales.scale[r][0]), 0, 0x3232);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        uint32_t pair = pairs[p];
        if constexpr (kScaling == Scaling::kExact) pair = MultiplyPairs<T>(pair, scale);
        if constexpr (kScaling == Scaling::kRounded) pair = ScaledPair(pair, scales, r, p / 2);
        a[2 * j + p / 2][p % 2 * 2 + r] = pair;
      }
    }
  }
}

// Whether the scales of four tiles of MXFP4, the first at `block`, are all below 2. A warp
// collective.
__device__ __forceinline__ bool HasSmallScales(const unsigned char* block, int block_bytes,
                                               int lane) {
  static_assert(kTileRows * kBlockChunks == 8 * 16);  // bytes of a tile: eight lanes' loads
  const uint4 exponents =
      *reinterpret_cast<const uint4*>(block + lane / 8 * block_bytes + lane % 8 * 16);
  const uint32_t any = exponents.x | exponents.y | exponents.z | exponents.w;
  return __all_sync(kAllLanes, (any & 0x80808080u) == 0);
}

template <typename Type, typename T, typename Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    HopperExpertsKernel(const __grid_constant__ HopperExpertsParams p) {
  constexpr PackedForm kForm = Type::kForm;
  constexpr int kSums = Tile::kSums;
  constexpr bool kOfSums = ScalingOf<Type, T>() == Scaling::kOfSums;
  // Whether there are registers for the next operand beside the one that is multiplied.
  constexpr bool kAhead = Tile::kRegisters - (kOfSums ? 2 : 1) * kSums >= 64;
  constexpr int kMultiplierWarps = Tile::kMultipliers / kWarpThreads;
  extern __shared__ unsigned char dynamic_shared[];
  const uint32_t memory = ptx::SharedAddress(dynamic_shared);
  const uint32_t slabs = (memory + Tile::kBarrierBytes + 1023) / 1024 * 1024;
  unsigned char* const held_memory =
      dynamic_shared + (slabs - memory) + Tile::kSlabs * Tile::kSlabBytes;
  unsigned char* const weights_memory = held_memory + Tile::kWarpgroups * Tile::kHeldBytes;
  const auto barrier = [&](int i) { return memory + static_cast<uint32_t>(i) * 8; };
  const auto slab_filled = [&](int i) { return barrier(i); };
  const auto slab_emptied = [&](int i) { return barrier(Tile::kSlabs + i); };
  const auto filled = [&](int i) { return barrier(2 * Tile::kSlabs + i); };
  const auto emptied = [&](int i) { return barrier(2 * Tile::kSlabs + Tile::kMostStages + i); };
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpThreads, lane = thread % kWarpThreads;
  if (thread == 0) {
    ptx::PrefetchMap(&p.x);
    for (int i = 0; i < Tile::kSlabs; ++i) {
      ptx::InitBarrier(slab_filled(i), 1);
      ptx::InitBarrier(slab_emptied(i), kMultiplierWarps);
    }
    for (int i = 0; i < p.n_stages; ++i) {
      ptx::InitBarrier(filled(i), 1);
      ptx::InitBarrier(emptied(i), kMultiplierWarps);
    }
    ptx::FenceBarrierInit();
  }
  __syncthreads();

  const int n_units = p.w.n_units, n_blocks = p.w.n_blocks();
  const int n_whole_blocks = n_units / kBlockUnits, header_bytes = p.w.header_bytes;
  const int stage_bytes = Tile::kStrips * p.w.block_bytes();
  const int outputs_of_tile = p.is_gated ? Tile::kOutputs / 2 : Tile::kOutputs;
  const int n_across = (p.n_outputs + outputs_of_tile - 1) / outputs_of_tile;
  // The tiles are old: see HopperGroupedGemm.
  const int n_work = LoadPlan(p.n_tiles) * n_across;
  const auto tile_at = [&](int i) {
    return i < n_work ? LoadPlan(p.tiles + i / n_across) : RowTile{};
  };
  const auto unit_of = [&](const RowTile& tile, int i) {
    return GroupedUnit(tile, i, n_across, Tile::kRows, outputs_of_tile);
  };
  const int first_work = static_cast<int>(blockIdx.x), n_ctas = static_cast<int>(gridDim.x);

  if (warp >= kMultiplierWarps) {
    ptx::GiveBackRegisters<24>();
    if (warp == kMultiplierWarps) {
      // The strip of this lane, in tiles of y and in the matrix.
      const int n_tiles_of_y = p.w.n_tiles() / (p.is_gated ? 2 : 1);
      const bool is_up = p.is_gated && lane % 4 >= 2;
      const int strip_of_y = p.is_gated ? lane / 4 * 2 + lane % 2 : lane;
      const uint32_t to =
          ptx::SharedAddress(weights_memory) + static_cast<uint32_t>(lane * p.w.block_bytes());
      RingTurn turn;
      RowTile tile = tile_at(first_work);
      const void* matrix = first_work < n_work ? p.weights[tile.matrix] : nullptr;
      for (int i = first_work; i < n_work; i += n_ctas) {
        const GroupedUnit work = unit_of(tile, i);
        tile = tile_at(i + n_ctas);
        const int strip = work.output / kTileRows + strip_of_y;
        const bool copies = lane < Tile::kStrips && strip < n_tiles_of_y;
        const int n_strips = __popc(__ballot_sync(kAllLanes, copies));
        const unsigned char* from = static_cast<const unsigned char*>(matrix) + p.tiles_at +
                                    (is_up ? n_tiles_of_y + strip : strip) * p.w.tile_bytes();
        for (int block = 0; block < n_blocks; ++block) {
          const int bytes =
              header_bytes + min(kBlockUnits, n_units - block * kBlockUnits) * UnitBytes(kForm);
          ptx::Wait(emptied(turn.at), turn.parity ^ 1);
          if (lane == 0) {
            ptx::ArriveAndExpect(filled(turn.at), static_cast<uint32_t>(n_strips * bytes));
          }
          __syncwarp();
          if (copies) {
            ptx::CopyBytes(to + static_cast<uint32_t>(turn.at * stage_bytes), from,
                           static_cast<uint32_t>(bytes), filled(turn.at));
          }
          from += bytes;
          turn.Next(p.n_stages);
          // The tile is there by now, so this waits for nothing.
          if (block == min(1, n_blocks - 1) && i + n_ctas < n_work) matrix = p.weights[tile.matrix];
        }
      }
    } else if (warp == kMultiplierWarps + 1 && lane == 0) {
      WaitForPrevious();
      LetNextStart();
      RingTurn turn;
      RowTile tile = tile_at(first_work);
      for (int i = first_work; i < n_work; i += n_ctas) {
        const GroupedUnit work = unit_of(tile, i);
        tile = tile_at(i + n_ctas);
        for (int unit = 0; unit < n_units; unit += Tile::kSlabUnits) {
          ptx::Wait(slab_emptied(turn.at), turn.parity ^ 1);
          ptx::ArriveAndExpect(slab_filled(turn.at), Tile::kSlabBytes);
          ptx::CopyBox(slabs + static_cast<uint32_t>(turn.at * Tile::kSlabBytes), &p.x,
                       {0, work.row, unit, 0}, slab_filled(turn.at));
          turn.Next(Tile::kSlabs);
        }
      }
    }
    return;
  }

  ptx::TakeRegisters<Tile::kRegisters>();
  WaitForPrevious();
  const int warpgroup = warp / 4, thread_of_group = thread % kWarpgroupThreads;
  T* held = reinterpret_cast<T*>(held_memory + warpgroup * Tile::kHeldBytes);
  // The first output of the warp, counted in y from that of the tile.
  const bool is_up = p.is_gated && warp % 4 >= 2;
  const int warp_output = kTileRows * (p.is_gated ? warpgroup * 2 + warp % 2 : warp);
  RingTurn turn, slab;
  RowTile tile = tile_at(first_work);
  for (int i = first_work; i < n_work; i += n_ctas) {
    const GroupedUnit work = unit_of(tile, i);
    tile = tile_at(i + n_ctas);
    float bias[2] = {};
    if (p.bias != nullptr && work.output + warp_output < p.n_outputs) {
      const float* const of_warp = p.bias + int64_t{work.matrix} * p.w.rows + work.output +
                                   warp_output + (is_up ? p.n_outputs : 0);
      bias[0] = of_warp[lane / 4];
      bias[1] = of_warp[lane / 4 + 8];
    }
    float sums[kSums];
    float group[kOfSums ? kSums : 1] = {};
    float group_scales[2] = {};
#pragma unroll
    for (float& sum : sums) sum = 0;
    // Adds the sums of a group, which nothing is multiplied for meanwhile.
    const auto end_group = [&] {
      if constexpr (kOfSums) {
        FenceAccumulators(group);
#pragma unroll
        for (int s = 0; s < kSums; ++s) sums[s] += group_scales[s / 2 % 2] * group[s];
      }
    };
    int used_slab = -1;
    // Unit u of a block. Its products may be in flight when this returns.
    const auto multiply_unit = [&]<bool kSmall>(int u, bool is_last, const unsigned char* units,
                                                BlockScales<Type, T>& scales) {
      if constexpr (!kAhead) WaitForWgmma<0>();
      uint32_t a[4][4];
      OwnOperand<kSmall>(units + u * UnitBytes(kForm), lane, u, scales, a);
      if (is_last) {
        __syncwarp();
        if (lane == 0) ptx::Arrive(emptied(turn.at));
      }
      const bool is_new_slab = u % Tile::kSlabUnits == 0;
      const int slab_before = used_slab;
      if (is_new_slab) {
        ptx::Wait(slab_filled(slab.at), slab.parity);
        used_slab = slab.at;
        slab.Next(Tile::kSlabs);
      }
      const bool begins = kOfSums && scales.Begins(2 * u);
      if (begins) {
        WaitForWgmma<0>();
        end_group();
        group_scales[0] = scales.scale[0][0];
        group_scales[1] = scales.scale[1][0];
      }
      const uint64_t x =
          WgmmaMatrix(slabs + static_cast<uint32_t>(used_slab * Tile::kSlabBytes +
                                                    u % Tile::kSlabUnits * Tile::kUnitBytes));
      const auto multiply = [&](auto& to) {
        FenceAccumulators(to);
        FenceOperand(a);
        BeginWgmma();
#pragma unroll
        for (int step = 0; step < kSlab / 16; ++step) {
          WgmmaFromRegisters<T>(to, a[step], x + step * kWgmmaStep, !begins || step > 0);
        }
        CommitWgmma();
        FenceAccumulators(to);
      };
      if constexpr (kOfSums) {
        multiply(group);
      } else {
        multiply(sums);
      }
      WaitForWgmma<1>();
      if (is_new_slab && slab_before >= 0 && lane == 0) ptx::Arrive(slab_emptied(slab_before));
    };
    const auto block_here = [&] {
      ptx::Wait(filled(turn.at), turn.parity);
      return weights_memory + turn.at * stage_bytes + warp * p.w.block_bytes();
    };
    const auto multiply_whole_block = [&]<bool kSmall>(const unsigned char* units,
                                                       BlockScales<Type, T>& scales) {
#pragma unroll
      for (int u = 0; u < kBlockUnits; ++u) {
        multiply_unit.template operator()<kSmall>(u, u + 1 == kBlockUnits, units, scales);
      }
    };
    for (int block = 0; block < n_whole_blocks; ++block) {
      const unsigned char* const weights = block_here();
      BlockScales<Type, T> scales(p.w, weights, lane / 4);
      if constexpr (ScalingOf<Type, T>() == Scaling::kExact) {
        // A warpgroup's warps must go the same way, so each one looks at the scales of all.
        if (HasSmallScales(weights - warp % 4 * p.w.block_bytes(), p.w.block_bytes(), lane)) {
          multiply_whole_block.template operator()<true>(weights + header_bytes, scales);
        } else {
          WaitForWgmma<0>();
          multiply_whole_block.template operator()<false>(weights + header_bytes, scales);
          WaitForWgmma<0>();
        }
      } else {
        multiply_whole_block.template operator()<false>(weights + header_bytes, scales);
      }
      turn.Next(p.n_stages);
    }
    WaitForWgmma<0>();
    if (n_whole_blocks < n_blocks) {
      const unsigned char* const weights = block_here();
      BlockScales<Type, T> scales(p.w, weights, lane / 4);
      const int n_here = n_units % kBlockUnits;
#pragma unroll 1
      for (int u = 0; u < n_here; ++u) {
        multiply_unit.template operator()<false>(u, u + 1 == n_here, weights + header_bytes,
                                                 scales);
        WaitForWgmma<0>();
      }
      turn.Next(p.n_stages);
    }
    WaitForWgmma<0>();
    if (lane == 0) ptx::Arrive(slab_emptied(used_slab));
    FenceAccumulators(sums);
    end_group();

    if constexpr (Tile::kHelds == 1) ptx::SyncThreads<kWarpgroupThreads>(1 + warpgroup);
#pragma unroll
    for (int s = 0; s < kSums; ++s) {
      const int row = s / 4 * 8 + lane % 4 * 2 + s % 2;
      const int output = warp % 4 * kTileRows + lane / 4 + s / 2 % 2 * 8;
      held[row * Tile::kHeldStride + output] = FromFloat<T>(sums[s] + bias[s / 2 % 2]);
    }
    ptx::SyncThreads<kWarpgroupThreads>(1 + warpgroup);
    const int first_output = work.output + warpgroup * (outputs_of_tile / Tile::kWarpgroups);
    T* const y = static_cast<T*>(p.y) + int64_t{work.row} * p.n_outputs + first_output;
    const int n_rows = work.end - work.row;
    if (p.is_gated) {
      // Whole chunks of y exist, or none.
      for (int at = thread_of_group; first_output < p.n_outputs && at < n_rows * 4;
           at += kWarpgroupThreads) {
        const int row = at / 4, piece = at % 4;
        const PieceOrder order = OrderOfPiece(p.y_order, piece);
        uint32_t words[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          const T* const gates =
              held + row * Tile::kHeldStride + 2 * (order.first + c * order.step);
          float results[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            results[e] = GatedBy</*kExact=*/false>(p.activation, p.clamped, ToFloat(gates[e]),
                                                   ToFloat(gates[32 + e]));
          }
          words[c] = PackPair<T>(results[0], results[1]);
        }
        *reinterpret_cast<uint4*>(y + int64_t{row} * p.n_outputs + 8 * piece) =
            make_uint4(words[0], words[1], words[2], words[3]);
      }
    } else {
      for (int at = thread_of_group; at < n_rows * 8; at += kWarpgroupThreads) {
        const int row = at / 8, output = at % 8 * 8;
        if (first_output + output >= p.n_outputs) continue;
        *reinterpret_cast<uint4*>(y + int64_t{row} * p.n_outputs + output) =
            *reinterpret_cast<const uint4*>(held + row * Tile::kHeldStride + output);
      }
    }
    if constexpr (Tile::kHelds > 1) {
      T* const first = reinterpret_cast<T*>(held_memory + warpgroup * Tile::kHeldBytes);
      held = held == first ? first + Tile::kRows * Tile::kHeldStride : first;
    }
  }
}

// As WithPackedType, with a shift of its own for the usual groups of codes that are exact.
template <typename Call>
cudaError_t WithExpertsType(const PackedPart& part, const Call& call) {
  using enum PackedForm;
  if (part.form == kInt4 && part.group_shift == 2) return call(PackedType<kInt4, 2>{});
  if (part.form == kFp8 && part.group_shift == 2) return call(PackedType<kFp8, 2>{});
  return WithForm(part.form, call);
}

template <typename T, int kRows>
cudaError_t RunHopperExperts(const Stream& stream, const HopperExpertsArgs& args) {
  using Tile = ExpertsTile<kRows>;
  const HopperGroupedArgs& gemm = args.gemm;
  const int32_t n_outputs = gemm.gated ? gemm.rows / 2 : gemm.rows;
  HopperExpertsParams params{.x = {},
                             .weights = args.weights,
                             .tiles_at = args.tiles_at,
                             .w = args.w,
                             .tiles = gemm.tiles,
                             .n_tiles = gemm.n_tiles,
                             .y = gemm.y.data,
                             .n_outputs = n_outputs,
                             .n_stages = Tile::Stages(stream, args.w),
                             .is_gated = gemm.gated,
                             .activation = gemm.kind,
                             .clamped = args.clamped,
                             .bias = args.bias,
                             .y_order = args.y_order};
  const cudaError_t error = MakeTensorMap(gemm.x, {1, gemm.n_rows, gemm.cols},
                                          {.rows = kRows, .slabs = Tile::kSlabUnits}, &params.x);
  if (error != cudaSuccess) return error;
  const int64_t most_work =
      gemm.max_tiles * CeilDiv(n_outputs, gemm.gated ? Tile::kOutputs / 2 : Tile::kOutputs);
  const LaunchShape shape{
      .grid = dim3(static_cast<unsigned>(std::min<int64_t>(most_work, stream.n_multiprocessors))),
      .block = Tile::kThreads,
      .shared_bytes = stream.block_shared_bytes};
  return WithExpertsType(args.w, [&](auto type) {
    return Launch<&HopperExpertsKernel<decltype(type), T, Tile>>(stream, shape, params);
  });
}

template <typename T>
cudaError_t HopperExperts(const Stream& stream, const HopperExpertsArgs& args) {
  switch (args.gemm.tile_rows) {
    case 16:
      return RunHopperExperts<T, 16>(stream, args);
    case 64:
      return RunHopperExperts<T, 64>(stream, args);
    default:
      return RunHopperExperts<T, 128>(stream, args);
  }
}

}  // namespace
}  // namespace stagecoach::kernels::cuda
