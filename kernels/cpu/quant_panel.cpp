#include "kernels/cpu/quant_panel.h"

#include <cstring>

namespace stagecoach::kernels {
namespace {

// One output's places in a superblock. Byte: uint8_t or const uint8_t
template <typename Byte>
struct OutputOf {
  Byte* super;
  const QuantLayout& layout;
  size_t row;

  Byte* Scale() const { return super + row * sizeof(uint16_t); }
  Byte* Minimum() const { return super + (kPanelRows + row) * sizeof(uint16_t); }
  Byte* Block(size_t b) const { return super + layout.header_bytes + b * layout.block_bytes(); }
  // The 32-bit lane of a line of codes.
  Byte* Lane(size_t b, size_t line) const { return Block(b) + line * 64 + row * 4; }
  Byte* SubScale(size_t b, size_t second) const {
    return Block(b) + layout.code_bytes + second * kPanelRows + row;
  }
};

// Where input k of 32 has its bits: a line, a byte of the output's lane, a shift.
struct BitPlace {
  size_t line, byte, shift;
};

constexpr BitPlace WholeCode(size_t k) { return {k / 4, k % 2 * 2 + k / 2 % 2, 0}; }
constexpr BitPlace LowNibble(size_t k) { return {k / 8, k % 2 * 2 + k / 2 % 4 / 2, k / 2 % 2 * 4}; }
constexpr BitPlace FifthBit(size_t k) { return {4, k % 2 * 2 + k / 2 / 8, k / 2 % 8}; }
constexpr BitPlace HighPair(size_t k) {
  return {4 + k / 16, k % 2 * 2 + k / 2 % 8 / 4, k / 2 % 4 * 2};
}

void PutBits(const OutputOf<uint8_t>& output, size_t b, const BitPlace& place, uint32_t bits) {
  uint8_t* const byte = output.Lane(b, place.line) + place.byte;
  *byte = static_cast<uint8_t>(*byte | bits << place.shift);
}

uint32_t GetBits(const OutputOf<const uint8_t>& output, size_t b, const BitPlace& place,
                 uint32_t mask) {
  return output.Lane(b, place.line)[place.byte] >> place.shift & mask;
}

void PutCode(const OutputOf<uint8_t>& output, size_t n_bits, size_t b, size_t k, uint32_t code) {
  if (n_bits == 8) return PutBits(output, b, WholeCode(k), code);
  PutBits(output, b, LowNibble(k), code & 15);
  if (n_bits == 5) PutBits(output, b, FifthBit(k), code >> 4);
  if (n_bits == 6) PutBits(output, b, HighPair(k), code >> 4);
}

uint32_t GetCode(const OutputOf<const uint8_t>& output, size_t n_bits, size_t b, size_t k) {
  if (n_bits == 8) return GetBits(output, b, WholeCode(k), 255);
  uint32_t code = GetBits(output, b, LowNibble(k), 15);
  if (n_bits == 5) code |= GetBits(output, b, FifthBit(k), 1) << 4;
  if (n_bits == 6) code |= GetBits(output, b, HighPair(k), 3) << 4;
  return code;
}

}  // namespace

void PackQuantRow(const uint8_t* blocks, gguf::TensorType encoding, size_t cols, size_t row,
                  uint8_t* panel) {
  const gguf::BlockForm form = gguf::FormOf(encoding);
  const QuantLayout layout = QuantLayoutOf(encoding);
  const size_t bytes = gguf::LayoutOf(encoding)->bytes;
  gguf::BlockCodes codes;
  for (size_t s = 0; s < cols / form.elements; ++s) {
    gguf::UnpackBlock(encoding, blocks + s * bytes, &codes);
    const OutputOf<uint8_t> output{panel + s * layout.super_bytes(), layout, row};
    std::memcpy(output.Scale(), &codes.scale, sizeof(codes.scale));
    if (form.has_minima) std::memcpy(output.Minimum(), &codes.minimum, sizeof(codes.minimum));
    for (size_t b = 0; b < form.elements / kQuantBlock; ++b) {
      for (size_t k = 0; k < kQuantBlock; ++k) {
        PutCode(output, form.bits, b, k, codes.codes[b * kQuantBlock + k]);
      }
      if (form.has_minima) {
        *output.SubScale(b, 0) = codes.sub_scales[b];
        *output.SubScale(b, 1) = codes.sub_minima[b];
      } else if (form.has_sub_scales()) {
        *output.SubScale(b, 0) = codes.sub_scales[2 * b];
        *output.SubScale(b, 1) = codes.sub_scales[2 * b + 1];
      }
    }
  }
}

void ReadQuantRow(const uint8_t* panel, gguf::TensorType encoding, size_t cols, size_t row,
                  float* out) {
  const gguf::BlockForm form = gguf::FormOf(encoding);
  const QuantLayout layout = QuantLayoutOf(encoding);
  gguf::BlockCodes codes;
  for (size_t s = 0; s < cols / form.elements; ++s) {
    const OutputOf<const uint8_t> output{panel + s * layout.super_bytes(), layout, row};
    std::memcpy(&codes.scale, output.Scale(), sizeof(codes.scale));
    if (form.has_minima) std::memcpy(&codes.minimum, output.Minimum(), sizeof(codes.minimum));
    for (size_t b = 0; b < form.elements / kQuantBlock; ++b) {
      for (size_t k = 0; k < kQuantBlock; ++k) {
        codes.codes[b * kQuantBlock + k] = static_cast<uint8_t>(GetCode(output, form.bits, b, k));
      }
      if (form.has_minima) {
        codes.sub_scales[b] = *output.SubScale(b, 0);
        codes.sub_minima[b] = *output.SubScale(b, 1);
      } else if (form.has_sub_scales()) {
        codes.sub_scales[2 * b] = *output.SubScale(b, 0);
        codes.sub_scales[2 * b + 1] = *output.SubScale(b, 1);
      }
    }
    gguf::BlockValues(form, codes, out + s * form.elements);
  }
}

}  // namespace stagecoach::kernels
