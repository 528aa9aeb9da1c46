// Decodes GGUF's quantized blocks into codes and scales, in element order.
//
// Block layouts: github.com/ggml-org/ggml, ggml-common.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/encoding/encoding.h"

namespace stagecoach {

// What codes of IQ4_NL and IQ4_XS stand for: numbers that are closer together near 0. They are
// raised by 127, so that none is negative.
alignas(16) inline constexpr uint8_t kIQ4Values[16] = {0,   23,  44,  62,  78,  92,  105, 117,
                                                       128, 140, 152, 165, 180, 196, 216, 240};

// element = scale * sub_scale * (number - zero) - minimum * sub_minimum
struct BlockForm {
  size_t bits;             // per code; 8-bit codes are signed
  int zero;                // subtracted from each number
  size_t elements;         // per block: 32, or 256 with sub-scales
  size_t group;            // elements that share a sub-scale: 16 or 32
  bool has_minima;         // then group is 32
  bool has_table = false;  // the number of a code is kIQ4Values[code]; else it is the code

  constexpr bool has_sub_scales() const { return elements > group; }
};

// REQUIRES: IsGgufBlock(code)
constexpr BlockForm FormOf(Code code) {
  switch (code) {
    case Code::kQ4_0:
      return {.bits = 4, .zero = 8, .elements = 32, .group = 32, .has_minima = false};
    case Code::kQ5_0:
      return {.bits = 5, .zero = 16, .elements = 32, .group = 32, .has_minima = false};
    case Code::kQ4_K:
      return {.bits = 4, .zero = 0, .elements = 256, .group = 32, .has_minima = true};
    case Code::kQ5_K:
      return {.bits = 5, .zero = 0, .elements = 256, .group = 32, .has_minima = true};
    case Code::kQ6_K:
      return {.bits = 6, .zero = 32, .elements = 256, .group = 16, .has_minima = false};
    case Code::kIQ4_NL:
    case Code::kIQ4_XS:
      return {.bits = 4,
              .zero = 127,
              .elements = code == Code::kIQ4_XS ? size_t{256} : size_t{32},
              .group = 32,
              .has_minima = false,
              .has_table = true};
    default:
      return {.bits = 8, .zero = 0, .elements = 32, .group = 32, .has_minima = false};  // Q8_0
  }
}

// Bytes of a block. REQUIRES: IsGgufBlock(code)
size_t BlockBytes(Code code);

struct BlockCodes {
  uint8_t codes[256];      // [elements]; int8 in Q8_0
  uint16_t scale;          // float16
  uint16_t minimum;        // float16; only if has_minima
  uint8_t sub_scales[16];  // [elements / group], if has_sub_scales(); int8 in Q6_K, IQ4_XS
  uint8_t sub_minima[8];   // [elements / group], if has_minima
};

// Fills in `codes`. Fields that the block's form does not have stay unchanged. `block` may be
// unaligned. REQUIRES: IsGgufBlock(code)
void UnpackBlock(Code code, const uint8_t* block, BlockCodes* codes);

// out: [form.elements]. Each element equals the result of gguf.quants.dequantize.
void BlockValues(const BlockForm& form, const BlockCodes& codes, float* out);

}  // namespace stagecoach
