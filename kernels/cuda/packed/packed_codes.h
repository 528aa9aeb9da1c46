// Packed codes and scales in registers: codes become pairs of 16-bit values that mma.m16n8k16
// multiplies, and are exact in both types.
//
// An integer code becomes a 16-bit value without a conversion: or'ed into the low bits of 128
// (bfloat16) or 1024 (float16) it is that number plus the code, from which one addition takes the
// number and the zero. FP8 and FP4 codes are shifted to where the type has exponent and mantissa,
// and one multiplication corrects the exponent's bias; this holds for subnormal codes, too.
#pragma once

#include "common/encoding/blocks.h"
#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/pairs.h"
#include "kernels/cuda/packed/packed_layout.h"

namespace stagecoach::kernels::cuda {

// 128 or 1024 in both halves: a code fits into the mantissa below.
template <typename T>
inline constexpr uint32_t kShifted = BothHalves(kIsBF16<T> ? 0x4300 : 0x6400);

// What codes need added so that they stand for code - zero: see UnitCodes::Pairs.
template <PackedForm kForm, typename T>
__device__ __forceinline__ uint32_t MinusZero(uint32_t zero) {
  if constexpr ((kForm == PackedForm::kInt8 || IsIQ4(kForm)) && kIsBF16<T>)
    return 0xcb000000u | zero;  // float32
  return 0x80008000u | kShifted<T> | BothHalves(zero);
}
// Whether codes are added to kShifted.
constexpr bool IsShifted(PackedForm form) { return !Is8Bit(form) && !IsFp4(form) && !IsIQ4(form); }
// For forms without zeros of their own. Int8 codes and zeros are biased by 128.
template <PackedForm kForm>
inline constexpr uint32_t kUsualZero = kForm == PackedForm::kInt4   ? 8
                                       : kForm == PackedForm::kInt5 ? 16
                                       : kForm == PackedForm::kInt8 ? 128
                                       : kForm == PackedForm::kQ6K  ? 32
                                       : IsIQ4(kForm)               ? 127
                                                                    : 0;

// FP8 codes 0 to 3 in a word: codes 0 and 1 have sign and magnitude where bfloat16 has them, in the
// low and the high half (bits 15, and 10 to 4). Codes 2 and 3 take the bits between: the sign bit
// 11, the magnitude's upper bits 14 to 12, and its lower bits 3 to 0.
__host__ __device__ constexpr uint32_t Fp8Half(uint32_t first, uint32_t second) {
  return (first & 0x80) << 8 | (first & 0x7f) << 4 | (second & 0x80) << 4 | (second & 0x70) << 8 |
         (second & 0x0f);
}
__host__ __device__ constexpr uint32_t Fp8Word(uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3) {
  return Fp8Half(c0, c2) | Fp8Half(c1, c3) << 16;
}

// Pair p of a word of E2M1 codes where the type has sign, exponent and mantissa: the numbers times
// 2^-126 (bfloat16) or 2^-14 (float16).
template <typename T>
__device__ __forceinline__ uint32_t Fp4Bits(uint32_t word, int p) {
  constexpr int kTo = kIsBF16<T> ? 6 : 9;  // the mantissa's first bit
  return AndOr(ShiftRight(word, 4 * p - 12), 0x80008000u,
               ShiftRight(word, 4 * p - kTo) & BothHalves(7u << kTo));
}

// A lane's codes of a unit.
template <PackedForm kForm, typename T>
struct UnitCodes {
  uint4 low[Is8Bit(kForm) ? 2 : 1];
  uint32_t high[2];

  __device__ __forceinline__ void Load(const unsigned char* unit, int lane) {
    low[0] = *reinterpret_cast<const uint4*>(unit + 16 * lane);
    if constexpr (Is8Bit(kForm)) low[1] = *reinterpret_cast<const uint4*>(unit + 512 + 16 * lane);
    if constexpr (HasFifthBit(kForm)) {
      high[0] = *reinterpret_cast<const uint32_t*>(unit + 512 + 4 * lane);
    }
    if constexpr (kForm == PackedForm::kQ6K) {
      const uint2 both = *reinterpret_cast<const uint2*>(unit + 512 + 8 * lane);
      high[0] = both.x;
      high[1] = both.y;
    }
  }

  // Brings pair p of every four to the place of the first.
  __device__ __forceinline__ void Turn(int p) {
    if constexpr (kForm == PackedForm::kFp8) {
#pragma unroll
      for (uint4& words : low) {
        words.x = Fp8First(p < 2 ? words.x : words.y, p % 2 != 0);
        words.z = Fp8First(p < 2 ? words.z : words.w, p % 2 != 0);
      }
    } else if constexpr (Is8Bit(kForm)) {
      const unsigned bytes = 0x10u + 0x22u * static_cast<unsigned>(p);
#pragma unroll
      for (uint4& words : low) {
        words.x = __byte_perm(words.x, words.y, bytes);
        words.z = __byte_perm(words.z, words.w, bytes);
      }
    } else {
      low[0].x = RotateRight(low[0].x, 4 * p);
      low[0].y = RotateRight(low[0].y, 4 * p);
      low[0].z = RotateRight(low[0].z, 4 * p);
      low[0].w = RotateRight(low[0].w, 4 * p);
      if constexpr (HasFifthBit(kForm)) high[0] = RotateRight(high[0], p);
      if constexpr (kForm == PackedForm::kQ6K) {
        high[0] = RotateRight(high[0], 2 * p);
        high[1] = RotateRight(high[1], 2 * p);
      }
    }
  }

  // The four pairs of chunk j for output g (r = 0) or g + 8 (r = 1). minus_zero: of this output;
  // not kLessZero: not added, if IsShifted.
  template <bool kLessZero = true>
  __device__ __forceinline__ void Pairs(int j, int r, uint32_t minus_zero,
                                        uint32_t (&pairs)[4]) const {
    if constexpr (Is8Bit(kForm)) {
      const uint4& words = low[j];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t word = r == 0 ? (i == 0 ? words.x : words.y) : (i == 0 ? words.z : words.w);
        if constexpr (kForm == PackedForm::kFp8) {
          Fp8Pairs(word, pairs[2 * i], pairs[2 * i + 1]);
        } else {
          pairs[2 * i] = Int8Pair(word, 0, minus_zero);
          pairs[2 * i + 1] = Int8Pair(word, 2, minus_zero);
        }
      }
    } else {
      const uint32_t word = Word4(j, r);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        if constexpr (IsFp4(kForm)) {
          pairs[p] = Fp4Pair(word, p);
        } else if constexpr (IsIQ4(kForm)) {
          const uint32_t both = __byte_perm(IQ4Bytes(word), IQ4Bytes(word >> 16),
                                            0x40u + 0x11u * static_cast<unsigned>(p));
          pairs[p] = Int8Pair(both, 0, minus_zero);
        } else {
          uint32_t pair = AndOr(word >> (4 * p), 0x000f000fu, kShifted<T>);
          if constexpr (HasFifthBit(kForm)) {
            pair = AndOr(ShiftRight(high[0], 8 * r + 4 * j + p - 4), 0x00100010u, pair);
          }
          if constexpr (kForm == PackedForm::kQ6K) {
            pair = AndOr(ShiftRight(high[j], 8 * r + 2 * p - 4), 0x00300030u, pair);
          }
          pairs[p] = kLessZero ? AddPairs<T>(pair, minus_zero) : pair;
        }
      }
    }
  }

  // The word of chunk j, if codes have 4 bits: for output g (r = 0) or g + 8 (r = 1).
  __device__ __forceinline__ uint32_t Word4(int j, int r) const {
    return j == 0 ? (r == 0 ? low[0].x : low[0].y) : (r == 0 ? low[0].z : low[0].w);
  }

 private:
  // The pair of bytes i and i + 1.
  static __device__ __forceinline__ uint32_t Int8Pair(uint32_t word, int i, uint32_t minus_zero) {
    if constexpr (kIsBF16<T>) {
      const float zero = __uint_as_float(minus_zero);
      const auto value = [&](unsigned byte) {
        return __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + byte)) + zero;
      };
      return PackPair<T>(value(static_cast<unsigned>(i)), value(static_cast<unsigned>(i) + 1));
    }
    const uint32_t selector = 0x4140u + 0x0101u * static_cast<unsigned>(i);
    return AddPairs<T>(__byte_perm(word, 0x64646464u, selector), minus_zero);
  }
  // Bytes: kIQ4Values of the four codes in the lower half.
  static __device__ __forceinline__ uint32_t IQ4Bytes(uint32_t codes) {
    constexpr auto four = [](int i) {
      return static_cast<uint32_t>(kIQ4Values[i] | kIQ4Values[i + 1] << 8 |
                                   kIQ4Values[i + 2] << 16 | kIQ4Values[i + 3] << 24);
    };
    constexpr uint32_t kValues[4] = {four(0), four(4), four(8), four(12)};
    const uint32_t of_eight = codes & 0x7777u;
    const uint32_t low = __byte_perm(kValues[0], kValues[1], of_eight);
    const uint32_t high = __byte_perm(kValues[2], kValues[3], of_eight);
    return __byte_perm(low, high, 0x3210u | (codes & 0x8888u) >> 1);
  }
  // The second pair of a word of FP8 codes, at the place of the first.
  static __device__ __forceinline__ uint32_t Fp8Second(uint32_t word) {
    return AndOr(word << 4, 0x80f080f0u, word >> 4 & 0x07000700u);
  }
  static __device__ __forceinline__ uint32_t Fp8First(uint32_t word, bool is_second) {
    return is_second ? Fp8Second(word) : word;
  }
  static __device__ __forceinline__ void Fp8Pairs(uint32_t word, uint32_t& first,
                                                  uint32_t& second) {
    first = word & 0x87f087f0u;
    second = Fp8Second(word);
    if constexpr (!kIsBF16<T>) {
      first = (first & 0x80008000u) | (first & 0x07f007f0u) << 3;
      second = (second & 0x80008000u) | (second & 0x07f007f0u) << 3;
    }
    constexpr uint32_t kBias = BothHalves(kIsBF16<T> ? 0x7b80 : 0x5c00);  // 2^120, 2^8
    first = MultiplyPairs<T>(first, kBias);
    second = MultiplyPairs<T>(second, kBias);
  }
  static __device__ __forceinline__ uint32_t Fp4Pair(uint32_t word, int p) {
    constexpr uint32_t kBias = BothHalves(kIsBF16<T> ? 0x7e80 : 0x7400);  // 2^126, 2^14
    return MultiplyPairs<T>(Fp4Bits<T>(word, p), kBias);
  }
};

// Element e of a lane's eight codes of a chunk: its input.
template <PackedForm kForm>
__host__ __device__ constexpr int InputOf(int c, int e) {
  return HasHalfScales(kForm) ? 4 * c + e % 4 + e / 4 * 16 : 8 * c + e;
}

// d times byte i of the word, rounded once.
__device__ __forceinline__ float TimesByte(float d, uint32_t word, int i) {
#ifdef STAGECOACH_EMULATED_CUDA
  return d * static_cast<float>(word >> (8 * i) & 0xff);
#else
  // 2^23 + byte, without a conversion. d * 2^23 is exact.
  const float byte =
      __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + static_cast<unsigned>(i)));
  return fmaf(d, byte, -8388608.0f * d);
#endif
}
// d times byte i of the word less 128, rounded once.
__device__ __forceinline__ float TimesBiasedByte(float d, uint32_t word, int i) {
  const float byte =
      __uint_as_float(__byte_perm(word, 0x4b000000u, 0x7650u + static_cast<unsigned>(i)));
  return d * (byte - 8388736.0f);
}

// d times the e4m3 number in byte i of the word, rounded once. d: multiplied by 2^8
__device__ __forceinline__ float TimesFp8Byte(float d, uint32_t word, int i) {
  const uint32_t code = word >> (8 * i);
  // As float16, the bits give 2^-8 of the number, also for subnormal ones.
  return d * ToFloat(F16{static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7f) << 7)});
}

// The scale in byte i of a word, an exponent (E8M0).
__device__ __forceinline__ float ScaleOfExponent(uint32_t word, int i) {
  const uint32_t exponent = word >> (8 * i) & 0xff;
  return __uint_as_float(max(exponent << 23, 0x00400000u));  // 2^-127 is not normal
}

// The chunks with the same scale are not known to the compiler.
inline constexpr int kAnyShift = -1;

// A form, and how many chunks of a block have the same scale: 2^kGroupShift.
template <PackedForm kForm_, int kGroupShift_>
struct PackedType {
  static constexpr PackedForm kForm = kForm_;
  static constexpr int kGroupShift = kGroupShift_;
};

// Scales of one block for outputs g and g + 8.
template <typename Type, typename T>
struct BlockScales {
  static constexpr PackedForm kForm = Type::kForm;
  static constexpr bool kMayHaveZeros = kForm == PackedForm::kInt4 || kForm == PackedForm::kInt8;

  float scale[2][2];  // [output][first and last 16 inputs]; the second: if HasHalfScales
  float minimum[2];   // if HasMinima
  uint32_t minus_zero[2];

  __device__ __forceinline__ BlockScales(const PackedPart& part, const unsigned char* header, int g)
      : kind_(part.scale_kind),
        has_zeros_(part.zeros_at > 0),
        shift_(Type::kGroupShift == kAnyShift ? part.group_shift : Type::kGroupShift) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      minus_zero[r] = MinusZero<kForm, T>(kUsualZero<kForm>);
      const int row = g + 8 * r;
      if constexpr (HasMinima(kForm)) {
        const uint32_t both = *reinterpret_cast<const uint32_t*>(header + 4 * row);
        d_[r] = ToFloat(F16{static_cast<uint16_t>(both)});
        d_minimum_[r] = ToFloat(F16{static_cast<uint16_t>(both >> 16)});
        bytes_[r] = *reinterpret_cast<const uint4*>(header + 64 + 16 * row);
      } else if constexpr (kForm == PackedForm::kNvFp4) {
        d_[r] = *reinterpret_cast<const float*>(header) * 0x1p8f;
        bytes_[r] = *reinterpret_cast<const uint4*>(header + 16 + 16 * row);
      } else if constexpr (kForm == PackedForm::kIQ4XS) {
        d_[r] = ToFloat(F16{*reinterpret_cast<const uint16_t*>(header + 2 * row)});
        const uint2 bytes = *reinterpret_cast<const uint2*>(header + 32 + 8 * row);
        bytes_[r] = make_uint4(bytes.x, bytes.y, 0, 0);
      } else if constexpr (HasSubScales(kForm)) {
        d_[r] = ToFloat(F16{*reinterpret_cast<const uint16_t*>(header + 2 * row)});
        bytes_[r] = *reinterpret_cast<const uint4*>(header + 32 + 16 * row);
      } else if constexpr (kForm == PackedForm::kMxFp4) {
        const uint2 bytes = *reinterpret_cast<const uint2*>(header + kBlockChunks * row);
        bytes_[r] = make_uint4(bytes.x, bytes.y, 0, 0);
      } else {
        scales_[r] = header + row * part.row_stride;
        zeros_[r] = header + part.zeros_at + row * (kBlockChunks >> shift_);
      }
    }
  }

  // Whether the scale may change with chunk i of a block, or after it.
  static constexpr bool Begins(int i) {
    if constexpr (Type::kGroupShift == kAnyShift) {
      return true;
    } else {
      return (i & ((1 << Type::kGroupShift) - 1)) == 0;
    }
  }
  static constexpr bool Ends(int i) { return Begins(i + 1); }

  // MXFP4 with a scale below 2: 2^126 times that of chunk i for output g or g + 8, as two bfloat16.
  __device__ __forceinline__ uint32_t FactorOfBits(int i, int r) const {
    const uint32_t exponent =
        __byte_perm(i < 4 ? bytes_[r].x : bytes_[r].y, 0, 0x4440u + static_cast<unsigned>(i % 4));
    return exponent * 0x00800080u + 126u * 0x00800080u;
  }

  // Loads those of the group of chunk i.
  __device__ __forceinline__ void Enter(int i) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (HasMinima(kForm)) {
        scale[r][0] = TimesByte(d_[r], i < 4 ? bytes_[r].x : bytes_[r].y, i % 4);
        minimum[r] = TimesByte(d_minimum_[r], i < 4 ? bytes_[r].z : bytes_[r].w, i % 4);
      } else if constexpr (kForm == PackedForm::kIQ4XS) {
        scale[r][0] = TimesBiasedByte(d_[r], i < 4 ? bytes_[r].x : bytes_[r].y, i % 4);
      } else if constexpr (HasSubScales(kForm)) {
        const uint4& b = bytes_[r];
        const uint32_t word = i / 2 == 0 ? b.x : i / 2 == 1 ? b.y : i / 2 == 2 ? b.z : b.w;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int byte = i % 2 * 2 + half;
          scale[r][half] = kForm == PackedForm::kNvFp4 ? TimesFp8Byte(d_[r], word, byte)
                                                       : TimesBiasedByte(d_[r], word, byte);
        }
      } else if constexpr (kForm == PackedForm::kMxFp4) {
        scale[r][0] = ScaleOfExponent(i < 4 ? bytes_[r].x : bytes_[r].y, i % 4);
      } else {
        const int group = i >> shift_;
        scale[r][0] = PlainScale(scales_[r], group);
        if constexpr (kMayHaveZeros) {
          if (has_zeros_) minus_zero[r] = MinusZero<kForm, T>(zeros_[r][group]);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ float PlainScale(const unsigned char* scales, int at) const {
    if constexpr (kForm == PackedForm::kFp8) return reinterpret_cast<const float*>(scales)[at];
    if (kMayHaveZeros && kind_ == ScaleKind::kF32) {
      return reinterpret_cast<const float*>(scales)[at];
    }
    const uint16_t bits = reinterpret_cast<const uint16_t*>(scales)[at];
    return kMayHaveZeros && kind_ == ScaleKind::kBF16 ? ToFloat(BF16{bits}) : ToFloat(F16{bits});
  }

  const ScaleKind kind_;
  const bool has_zeros_;
  const int shift_;
  const unsigned char *scales_[2], *zeros_[2];
  float d_[2], d_minimum_[2];
  uint4 bytes_[2];
};

// The lane's eight values of chunk j of a unit for output g (r = 0) or g + 8, as
// common/encoding/rows.h decodes them. scales: of this chunk
template <typename Type, typename T>
__device__ __forceinline__ void Values8(const UnitCodes<Type::kForm, T>& codes,
                                        const BlockScales<Type, T>& scales, int j, int r,
                                        float (&out)[8]) {
  constexpr PackedForm kForm = Type::kForm;
  uint32_t pairs[4];
  codes.Pairs(j, r, scales.minus_zero[r], pairs);
#pragma unroll
  for (int e = 0; e < 8; ++e) {
    const auto half = static_cast<uint16_t>(pairs[e / 2] >> (e % 2 * 16));
    const float scale = scales.scale[r][HasHalfScales(kForm) ? e / 4 : 0];
    out[e] = RoundedProduct(scale, ToFloat(T{half}));
    if constexpr (HasMinima(kForm)) out[e] -= scales.minimum[r];
  }
}

// Calls call(PackedType{}) for the form, with kAnyShift, and returns its result.
template <typename Call>
auto WithForm(PackedForm form, const Call& call) {
  using enum PackedForm;
  switch (form) {
    case kInt4:
      return call(PackedType<kInt4, kAnyShift>{});
    case kInt5:
      return call(PackedType<kInt5, kAnyShift>{});
    case kInt8:
      return call(PackedType<kInt8, kAnyShift>{});
    case kFp8:
      return call(PackedType<kFp8, kAnyShift>{});
    case kMxFp4:
      return call(PackedType<kMxFp4, kAnyShift>{});
    case kQ4K:
      return call(PackedType<kQ4K, kAnyShift>{});
    case kQ5K:
      return call(PackedType<kQ5K, kAnyShift>{});
    case kIQ4NL:
      return call(PackedType<kIQ4NL, kAnyShift>{});
    case kIQ4XS:
      return call(PackedType<kIQ4XS, kAnyShift>{});
    case kNvFp4:
      return call(PackedType<kNvFp4, kAnyShift>{});
    case kQ6K:
      break;
  }
  return call(PackedType<kQ6K, kAnyShift>{});
}

// The same with the shift of usual groups: 128 inputs, and whole rows.
template <typename Call>
auto WithPackedType(const PackedPart& part, const Call& call) {
  using enum PackedForm;
  const auto with_shift = [&]<PackedForm kForm>() {
    switch (part.group_shift) {
      case 2:
        return call(PackedType<kForm, 2>{});
      case 3:
        return call(PackedType<kForm, 3>{});
      default:
        return call(PackedType<kForm, kAnyShift>{});
    }
  };
  switch (part.form) {
    case kInt4:
      return with_shift.template operator()<kInt4>();
    case kInt8:
      return with_shift.template operator()<kInt8>();
    case kFp8:
      return with_shift.template operator()<kFp8>();
    default:
      return WithForm(part.form, call);
  }
}

}  // namespace stagecoach::kernels::cuda
