#include "kernels/cpu/quant_panel.h"

#include <cstring>
#include <vector>

#include "common/encoding/rows.h"

namespace stagecoach::kernels {
namespace {

// Addresses of one output's data in a superblock. Byte: uint8_t or const uint8_t.
template <typename Byte>
struct OutputOf {
  Byte* super;
  const QuantLayout& layout;
  size_t row;

  Byte* Scale(size_t bytes = sizeof(uint16_t)) const { return super + row * bytes; }
  Byte* Zero() const { return super + layout.header_bytes - kPanelRows + row; }
  Byte* Minimum() const { return super + (kPanelRows + row) * sizeof(uint16_t); }
  Byte* Block(size_t b) const { return super + layout.header_bytes + b * layout.block_bytes(); }
  // The 16-bit half in a line of codes that has input k of block b.
  Byte* Half(size_t b, size_t line, size_t k) const {
    return Block(b) + line * 64 + row * 4 + k % 2 * sizeof(uint16_t);
  }
  Byte* SubScale(size_t b, size_t second) const {
    return Block(b) + layout.code_bytes + second * kPanelRows + row;
  }
};

// Bits [first, first + n) of a code are stored at bit `shift` of a half in `line`.
struct CodePart {
  size_t line, shift, first, n;
};

// Calls use(CodePart) for all parts of the codes of a pair of inputs.
template <typename F>
void ForEachPart(size_t n_bits, size_t pair, const F& use) {
  if (n_bits == 6) {
    const size_t first_line = pair / 8 * 3, p = pair % 8;
    if (p < 6) return use(CodePart{first_line + p / 2, p % 2 * 6, 0, 6});
    use(CodePart{first_line + p - 6, 12, 0, 4});
    use(CodePart{first_line + 2, 12 + (p - 6) * 2, 4, 2});
  } else if (n_bits == 5 && pair == 15) {
    for (size_t bit = 0; bit < 5; ++bit) use(CodePart{bit, 15, bit, 1});
  } else {
    const size_t n_whole = 16 / n_bits;
    use(CodePart{pair / n_whole, pair % n_whole * n_bits, 0, n_bits});
  }
}

void PutCode(const OutputOf<uint8_t>& output, size_t n_bits, size_t b, size_t k, uint32_t code) {
  ForEachPart(n_bits, k / 2, [&](const CodePart& part) {
    uint8_t* const at = output.Half(b, part.line, k);
    uint16_t half;
    std::memcpy(&half, at, sizeof(half));
    half |= static_cast<uint16_t>((code >> part.first & ((1u << part.n) - 1)) << part.shift);
    std::memcpy(at, &half, sizeof(half));
  });
}

uint32_t GetCode(const OutputOf<const uint8_t>& output, size_t n_bits, size_t b, size_t k) {
  uint32_t code = 0;
  ForEachPart(n_bits, k / 2, [&](const CodePart& part) {
    uint16_t half;
    std::memcpy(&half, output.Half(b, part.line, k), sizeof(half));
    code |= (half >> part.shift & ((1u << part.n) - 1)) << part.first;
  });
  return code;
}

void PackBlocks(const uint8_t* blocks, Code code, size_t cols, size_t row, uint8_t* panel) {
  const BlockForm form = FormOf(code);
  const QuantLayout layout = QuantLayoutOf(code);
  const size_t bytes = BlockBytes(code);
  BlockCodes codes;
  for (size_t s = 0; s < cols / form.elements; ++s) {
    UnpackBlock(code, blocks + s * bytes, &codes);
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
        for (size_t g = 0; g < kQuantBlock / form.group; ++g) {
          *output.SubScale(b, g) = codes.sub_scales[b * kQuantBlock / form.group + g];
        }
      }
    }
  }
}

void ReadBlocks(const uint8_t* panel, Code code, size_t cols, size_t row, float* out) {
  const BlockForm form = FormOf(code);
  const QuantLayout layout = QuantLayoutOf(code);
  BlockCodes codes;
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
        for (size_t g = 0; g < kQuantBlock / form.group; ++g) {
          codes.sub_scales[b * kQuantBlock / form.group + g] = *output.SubScale(b, g);
        }
      }
    }
    BlockValues(form, codes, out + s * form.elements);
  }
}

// Codes of a row of groups.
uint32_t GroupedCode(const uint8_t* codes, size_t n_bits, size_t i) {
  return n_bits == 4 ? codes[i / 2] >> (i % 2 * 4) & 15u : codes[i];
}

void PackGroups(const uint8_t* from, const Encoding& encoding, size_t cols, size_t row,
                uint8_t* panel) {
  const QuantLayout layout = QuantLayoutOf(encoding, cols);
  const GroupedRow<const uint8_t> source = GroupedRowAt(encoding, cols, from);
  const size_t n_bits = GroupedBits(encoding.code), scale_bytes = ScaleBytes(encoding);
  size_t i = 0;
  for (size_t g = 0; g < cols / layout.super_inputs; ++g) {
    const OutputOf<uint8_t> output{panel + g * layout.super_bytes(), layout, row};
    std::memcpy(output.Scale(scale_bytes), source.scales + g * scale_bytes, scale_bytes);
    if (encoding.has_zeros) *output.Zero() = source.zeros[g];
    for (size_t b = 0; b < layout.super_inputs / kQuantBlock; ++b) {
      for (size_t k = 0; k < kQuantBlock; ++k, ++i) {
        PutCode(output, n_bits, b, k, GroupedCode(source.codes, n_bits, i));
      }
    }
  }
}

void ReadGroups(const uint8_t* panel, const Encoding& encoding, size_t cols, size_t row,
                float* out) {
  const QuantLayout layout = QuantLayoutOf(encoding, cols);
  const size_t n_bits = GroupedBits(encoding.code), scale_bytes = ScaleBytes(encoding);
  std::vector<uint8_t> bytes(RowBytes(encoding, cols));
  const GroupedRow<uint8_t> to = GroupedRowAt(encoding, cols, bytes.data());
  size_t i = 0;
  for (size_t g = 0; g < cols / layout.super_inputs; ++g) {
    const OutputOf<const uint8_t> output{panel + g * layout.super_bytes(), layout, row};
    std::memcpy(to.scales + g * scale_bytes, output.Scale(scale_bytes), scale_bytes);
    if (encoding.has_zeros) to.zeros[g] = *output.Zero();
    for (size_t b = 0; b < layout.super_inputs / kQuantBlock; ++b) {
      for (size_t k = 0; k < kQuantBlock; ++k, ++i) {
        const uint32_t code = GetCode(output, n_bits, b, k);
        to.codes[i * n_bits / 8] |= static_cast<uint8_t>(code << (i * n_bits % 8));
      }
    }
  }
  DecodeRows(encoding, bytes.data(), 1, cols, out);
}

void PackNvFp4(const uint8_t* from, const Encoding& encoding, size_t cols, size_t row,
               uint8_t* panel) {
  const QuantLayout layout = QuantLayoutOf(encoding, cols);
  const GroupedRow<const uint8_t> source = GroupedRowAt(encoding, cols, from);
  std::memcpy(panel + row * sizeof(float), source.matrix_scale, sizeof(float));
  for (size_t s = 0; s < cols / kQuantBlock; ++s) {
    const OutputOf<uint8_t> output{panel + layout.prefix_bytes + s * layout.super_bytes(), layout,
                                   row};
    for (size_t k = 0; k < kQuantBlock; ++k) {
      PutCode(output, 4, 0, k, GroupedCode(source.codes, 4, s * kQuantBlock + k));
    }
    *output.SubScale(0, 0) = source.scales[2 * s];
    *output.SubScale(0, 1) = source.scales[2 * s + 1];
  }
}

void ReadNvFp4(const uint8_t* panel, const Encoding& encoding, size_t cols, size_t row,
               float* out) {
  const QuantLayout layout = QuantLayoutOf(encoding, cols);
  std::vector<uint8_t> bytes(RowBytes(encoding, cols));
  const GroupedRow<uint8_t> to = GroupedRowAt(encoding, cols, bytes.data());
  std::memcpy(to.matrix_scale, panel + row * sizeof(float), sizeof(float));
  for (size_t s = 0; s < cols / kQuantBlock; ++s) {
    const OutputOf<const uint8_t> output{panel + layout.prefix_bytes + s * layout.super_bytes(),
                                         layout, row};
    for (size_t k = 0; k < kQuantBlock; ++k) {
      const size_t i = s * kQuantBlock + k;
      to.codes[i / 2] |= static_cast<uint8_t>(GetCode(output, 4, 0, k) << (i % 2 * 4));
    }
    to.scales[2 * s] = *output.SubScale(0, 0);
    to.scales[2 * s + 1] = *output.SubScale(0, 1);
  }
  DecodeRows(encoding, bytes.data(), 1, cols, out);
}

}  // namespace

void PackQuantRow(const uint8_t* from, const Encoding& encoding, size_t cols, size_t row,
                  uint8_t* panel) {
  if (IsGgufBlock(encoding.code)) {
    PackBlocks(from, encoding.code, cols, row, panel);
  } else if (encoding.code == Code::kNvFp4) {
    PackNvFp4(from, encoding, cols, row, panel);
  } else {
    PackGroups(from, encoding, cols, row, panel);
  }
}

void ReadQuantRow(const uint8_t* panel, const Encoding& encoding, size_t cols, size_t row,
                  float* out) {
  if (IsGgufBlock(encoding.code)) {
    ReadBlocks(panel, encoding.code, cols, row, out);
  } else if (encoding.code == Code::kNvFp4) {
    ReadNvFp4(panel, encoding, cols, row, out);
  } else {
    ReadGroups(panel, encoding, cols, row, out);
  }
}

}  // namespace stagecoach::kernels
