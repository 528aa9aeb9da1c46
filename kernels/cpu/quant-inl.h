// Multiplication by quantized weights (quant_panel.h).
//
// The inputs of a row are quantized to 16-bit integers (15 bits and a sign) with one scale per 32
// inputs. This is finer than the bfloat16 that the models were trained with. The products of 32
// inputs are summed as integers; this is exact, so their order does not matter. The sums of 32 are
// then scaled and added as floats, in input order, for one row and for many rows. Included once per
// instruction set.
#if defined(STAGECOACH_KERNELS_CPU_QUANT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_QUANT_INL_H_
#undef STAGECOACH_KERNELS_CPU_QUANT_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_QUANT_INL_H_
#endif

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/cpu/pair-inl.h"
#include "kernels/cpu/panel-inl.h"
#include "kernels/cpu/quant_blocks-inl.h"
#include "kernels/cpu/quant_panel.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

inline constexpr size_t kPairs = kQuantBlock / 2;

// What the product of unpacked codes depends on.
struct CodesForm {
  size_t groups;  // per 32 inputs
  bool has_minima;
  bool has_zeros;  // a zero per output; else the zeros are in XCopy
};

constexpr CodesForm CodesFormOf(Code code) {
  const BlockForm form = QuantFormOf(code);
  return {.groups = kQuantBlock / form.group,
          .has_minima = form.has_minima,
          .has_zeros = MayHaveZeros(code)};
}

// Rows of quantized inputs times panels of unpacked codes, for 256 inputs.
template <CodesForm kForm, bool kDots>
struct CodesProduct {
  // On AVX-512, a row's pair serves two panels: loading it takes as long as multiplying it once.
  static constexpr size_t kRows = kPanelLanes == 16 ? 12 : kPanelLanes == 8 ? 4 : 2;
  static constexpr size_t kRowStep = kPanelLanes == 16 ? 4 : kRows;
  static constexpr size_t kPanels = kPanelLanes == 16 ? 2 : 1;
  static constexpr size_t kWidth = kPanels * kPanelRows;
  static constexpr size_t kVecs = kPanels * kPanelVecs;
  static constexpr size_t kBlocks = 8;
  static constexpr size_t kPairsOfGroup = kPairs / kForm.groups;

  template <size_t kN>
  struct XCopy {
    int32_t pairs[kBlocks][kPairs][kN];  // two int16 each
    int32_t zeros[kBlocks][2][kN];       // -zero * sum of a group's integers; has_zeros: -sum
    float scales[kBlocks][kN];
    float sums[kBlocks][kN];  // scale * sum of 32 integers
  };
  struct WCopy {
    int16_t codes[kBlocks][kPairs][kWidth * 2];
    float scales[kBlocks][kForm.groups][kWidth];
    float minus_minima[kForm.has_minima ? kBlocks : 1][kWidth];
    int32_t zeros[kForm.has_zeros ? kBlocks : 1][kWidth];
  };

  // Adds the scaled sum of a group of inputs to c.
  static HWY_INLINE PanelVec AddGroup(SumVec even, SumVec odd, PanelVec scale, float x_scale,
                                      PanelVec c) {
    return Scaled(BothSums(even, odd), scale, x_scale, c);
  }
  static HWY_INLINE PanelVec Scaled(SumVec sum, PanelVec scale, float x_scale, PanelVec c) {
    const PanelTag d;
    return hn::MulAdd(hn::ConvertTo(d, sum), hn::Mul(scale, hn::Set(d, x_scale)), c);
  }

  // Adds to c: [kRows][kWidth], of which at least n_rows rows count.
  template <size_t kN = kRows>
  static HWY_INLINE void Add(size_t n_rows, const XCopy<kRows>& xs, const WCopy& ws,
                             size_t n_blocks, float* c) {
    if constexpr (kN > kRowStep) {
      if (n_rows <= kN - kRowStep) return Add<kN - kRowStep>(n_rows, xs, ws, n_blocks, c);
    }
    AddRows<kN>(xs, ws, n_blocks, c);
  }

  // Without the pragmas, GCC keeps the sums in memory, or copies registers between iterations.
  template <size_t kN>
  static HWY_NOINLINE void AddRows(const XCopy<kRows>& xs, const WCopy& ws, size_t n_blocks,
                                   float* HWY_RESTRICT c) {
    const PanelTag d;
    for (size_t b = 0; b < n_blocks; ++b) {
      for (size_t g = 0; g < kForm.groups; ++g) {
        SumVec even[kN][kVecs], odd[kN][kVecs];
#pragma GCC unroll 12
        for (size_t r = 0; r < kN; ++r) {
          for (size_t v = 0; v < kVecs; ++v) {
            even[r][v] = hn::Set(SumTag(), xs.zeros[b][g][r]);
            if constexpr (kForm.has_zeros) {
              even[r][v] = hn::Mul(even[r][v], hn::LoadU(SumTag(), ws.zeros[b] + v * kPanelLanes));
            }
            odd[r][v] = hn::Zero(SumTag());
          }
        }
#pragma GCC unroll 4
        for (size_t p = g * kPairsOfGroup; p < (g + 1) * kPairsOfGroup; ++p) {
          PairVec w[kVecs];
          for (size_t v = 0; v < kVecs; ++v) {
            w[v] = LoadPairs(ws.codes[b][p] + v * 2 * kPanelLanes);
          }
#pragma GCC unroll 12
          for (size_t r = 0; r < kN; ++r) {
            for (size_t v = 0; v < kVecs; ++v) {
              MulPair<kDots>(xs.pairs[b][p][r], w[v], even[r][v], odd[r][v]);
            }
          }
        }
        PanelVec scale[kVecs], minimum[kVecs];
        for (size_t v = 0; v < kVecs; ++v) {
          scale[v] = hn::LoadU(d, ws.scales[b][g] + v * kPanelLanes);
          if constexpr (kForm.has_minima) {
            minimum[v] = hn::LoadU(d, ws.minus_minima[b] + v * kPanelLanes);
          }
        }
#pragma GCC unroll 12
        for (size_t r = 0; r < kN; ++r) {
          for (size_t v = 0; v < kVecs; ++v) {
            float* const at = c + r * kWidth + v * kPanelLanes;
            PanelVec sum =
                AddGroup(even[r][v], odd[r][v], scale[v], xs.scales[b][r], hn::LoadU(d, at));
            if constexpr (kForm.has_minima) {
              sum = hn::MulAdd(minimum[v], hn::Set(d, xs.sums[b][r]), sum);
            }
            hn::StoreU(sum, d, at);
          }
        }
      }
    }
  }
};

// Tile for blocked multiplication with quantized weights; see gemm_blocks-inl.h.
// kDots: with AVX-512's extension VNNI, which changes no bit.
template <Code kType, bool kDots>
struct QuantTile {
  static constexpr BlockForm kForm = QuantFormOf(kType);
  using Product = CodesProduct<CodesFormOf(kType), kDots>;
  static constexpr size_t kRows = Product::kRows;
  static constexpr size_t kRowStep = Product::kRowStep;
  static constexpr size_t kGroup = Product::kPanels;
  static constexpr size_t kBlocks = Product::kBlocks;
  static constexpr size_t kInputs = kBlocks * kQuantBlock;
  static constexpr size_t kPairsOfGroup = kForm.group / 2;

  template <size_t kN>
  using XCopy = typename Product::template XCopy<kN>;  // of kN rows for kInputs inputs
  using WCopy = typename Product::WCopy;
  template <size_t kN>
  static constexpr size_t kCopyBytes = (sizeof(XCopy<kN>) + 63) / 64 * 64;
  static constexpr size_t kXBytes = kCopyBytes<kRows>;
  static constexpr size_t kWBytes = (sizeof(WCopy) + 63) / 64 * 64;

  // Up to so many rows, rereading the panels for each row is faster than unpacking them.
  static constexpr size_t kFewRows = 3;
  // How far ahead a row prefetches, in bytes: the two cores with AMX where it was measured read
  // about a tenth faster so.
  static constexpr size_t kAhead = 1024;

  const float* x;  // [T, k]
  size_t k;
  Encoding encoding;
  const int32_t* order;      // of the inputs, [k], or null
  QuantLayout group_layout;  // of grouped codes

  constexpr QuantLayout layout() const {
    if constexpr (IsGgufBlock(kType)) return QuantLayoutOf(kType);
    return group_layout;
  }

  // 32 inputs of a row in the order of the weights. `gathered`: room for 32.
  const float* Inputs(size_t row, size_t first, float* gathered) const {
    const float* const from = x + row * k;
    if (order == nullptr) return from + first;
    for (size_t i = 0; i < kQuantBlock; ++i) gathered[i] = from[order[first + i]];
    return gathered;
  }

  void CopyX(size_t row, size_t n_rows, size_t first, size_t n, uint8_t* to) const {
    auto& copy = *reinterpret_cast<XCopy<kRows>*>(to);
    float gathered[kQuantBlock];
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t b = 0; b < n / kQuantBlock; ++b) {
        if (r < n_rows) {
          QuantizeBlock(Inputs(row + r, first + b * kQuantBlock, gathered), b, r, copy);
        } else {
          ZeroBlock(b, r, copy);
        }
      }
    }
  }

  // to: one XCopy<1> per 256 inputs.
  void CopyOneRow(size_t row, uint8_t* to) const {
    auto* const copies = reinterpret_cast<XCopy<1>*>(to);
    float gathered[kQuantBlock];
    for (size_t i = 0; i < k / kQuantBlock; ++i) {
      QuantizeBlock(Inputs(row, i * kQuantBlock, gathered), i % kBlocks, 0, copies[i / kBlocks]);
    }
  }

  template <size_t kN>
  static void QuantizeBlock(const float* from, size_t b, size_t r, XCopy<kN>& copy) {
    const QuantizedInputs inputs(from);
    for (size_t i = 0; i < kQuantBlock; i += 2) {
      std::memcpy(&copy.pairs[b][i / 2][r], inputs.codes + i, sizeof(int32_t));
    }
    const int32_t both = inputs.sums[0] + inputs.sums[1];
    copy.scales[b][r] = inputs.scale;
    copy.sums[b][r] = inputs.ScaledSum();
    constexpr int kZero = MayHaveZeros(kType) ? 1 : kForm.zero;
    copy.zeros[b][0][r] = -kZero * (kForm.group == 16 ? inputs.sums[0] : both);
    copy.zeros[b][1][r] = -kZero * inputs.sums[1];
  }

  template <size_t kN>
  static void ZeroBlock(size_t b, size_t r, XCopy<kN>& copy) {
    for (size_t p = 0; p < kPairs; ++p) copy.pairs[b][p][r] = 0;
    copy.zeros[b][0][r] = copy.zeros[b][1][r] = 0;
    copy.scales[b][r] = copy.sums[b][r] = 0;
  }

  void CopyW(const uint8_t* const* panels, size_t n_panels, size_t first, size_t n,
             uint8_t* to) const {
    WCopy& copy = *reinterpret_cast<WCopy*>(to);
    for (size_t p = 0; p < n_panels; ++p) {
      BlockWalk walk(layout(), first / kQuantBlock);
      for (size_t b = 0; b < n / kQuantBlock; ++b, walk.Next(layout())) {
        const uint8_t* const block = panels[p] + walk.block;
        for (size_t v = 0; v < kPanelVecs; ++v) {
          const size_t column = p * kPanelRows + v * kPanelLanes;
          CopyCodes(block, v, copy.codes[b], 2 * column, std::make_index_sequence<kPairs>());
          const auto scales = BlockScales<kType>::Of(encoding, panels[p], walk, v);
          for (size_t g = 0; g < BlockScales<kType>::kGroups; ++g) {
            hn::StoreU(scales.scale[g], PanelTag(), copy.scales[b][g] + column);
          }
          if constexpr (kForm.has_minima) {
            hn::StoreU(scales.minus_minimum, PanelTag(), copy.minus_minima[b] + column);
          }
          if constexpr (MayHaveZeros(kType)) {
            hn::StoreU(scales.zero, SumTag(), copy.zeros[b] + column);
          }
        }
      }
    }
  }

  template <size_t... kPair>
  static HWY_INLINE void CopyCodes(const uint8_t* block, size_t v,
                                   int16_t (*to)[Product::kWidth * 2], size_t column,
                                   std::index_sequence<kPair...>) {
    (StorePairs(CodePair<kType, kPair>(block, v), to[kPair] + column), ...);
  }

  // c: [kRows][kWidth], overwritten if first is 0, else accumulated.
  static void Mul(size_t n_rows, const uint8_t* x_copy, const uint8_t* w_copy, size_t first,
                  size_t n, float* c) {
    if (first == 0) std::fill_n(c, kRows * Product::kWidth, 0.0f);
    Product::Add(n_rows, *reinterpret_cast<const XCopy<kRows>*>(x_copy),
                 *reinterpret_cast<const WCopy*>(w_copy), n / kQuantBlock, c);
  }

  // One row (see CopyOneRow) times complete panels, without copies. c: [kPanels, 16]
  template <size_t kPanels>
  HWY_NOINLINE void MulOne(const uint8_t* x_copy, const uint8_t* const* panels, size_t n_inputs,
                           float* c) const {
    const PanelTag d;
    PanelVec sum[kPanels][kPanelVecs];
    for (size_t p = 0; p < kPanels; ++p) {
      for (size_t v = 0; v < kPanelVecs; ++v) sum[p][v] = hn::Zero(d);
    }
    BlockWalk walk(layout(), 0);
    for (size_t i = 0; i < n_inputs / kQuantBlock; ++i, walk.Next(layout())) {
      const auto& xs = reinterpret_cast<const XCopy<1>*>(x_copy)[i / kBlocks];
      const size_t b = i % kBlocks;
// Else GCC keeps the sums in memory, and a row takes a sixth longer.
#pragma GCC unroll 4
      for (size_t p = 0; p < kPanels; ++p) {
        const uint8_t* const block = panels[p] + walk.block;
        if constexpr (kDots) PrefetchCodes<kType>(block + kAhead);
        for (size_t v = 0; v < kPanelVecs; ++v) {
          const auto scales = BlockScales<kType>::Of(encoding, panels[p], walk, v);
          MulGroups(block, v, xs, b, scales, sum[p][v],
                    std::make_index_sequence<BlockScales<kType>::kGroups>());
          if constexpr (kForm.has_minima) {
            sum[p][v] = hn::MulAdd(scales.minus_minimum, hn::Set(d, xs.sums[b][0]), sum[p][v]);
          }
        }
      }
    }
    for (size_t p = 0; p < kPanels; ++p) {
      for (size_t v = 0; v < kPanelVecs; ++v) {
        hn::StoreU(sum[p][v], d, c + p * kPanelRows + v * kPanelLanes);
      }
    }
  }

  template <size_t... kG>
  static HWY_INLINE void MulGroups(const uint8_t* block, size_t v, const XCopy<1>& xs, size_t b,
                                   const BlockScales<kType>& scales, PanelVec& sum,
                                   std::index_sequence<kG...>) {
    (MulGroup<kG>(block, v, xs, b, FirstSum<kG>(xs, b, scales), scales.scale[kG], sum,
                  std::make_index_sequence<kPairsOfGroup>()),
     ...);
  }

  // What the zeros add to the sum of a group.
  template <size_t kG>
  static HWY_INLINE SumVec FirstSum(const XCopy<1>& xs, size_t b,
                                    const BlockScales<kType>& scales) {
    const SumVec sum = hn::Set(SumTag(), xs.zeros[b][kG][0]);
    if constexpr (MayHaveZeros(kType)) return hn::Mul(sum, scales.zero);
    return sum;
  }

  template <size_t kG, size_t... kPair>
  static HWY_INLINE void MulGroup(const uint8_t* block, size_t v, const XCopy<1>& xs, size_t b,
                                  SumVec even, PanelVec scale, PanelVec& sum,
                                  std::index_sequence<kPair...>) {
    SumVec odd = hn::Zero(SumTag());
    (MulPair<kDots>(xs.pairs[b][kG * kPairsOfGroup + kPair][0],
                    CodePair<kType, kG * kPairsOfGroup + kPair>(block, v), even, odd),
     ...);
    sum = Product::AddGroup(even, odd, scale, xs.scales[b][0], sum);
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
