#include "kernels/cuda/packed/pack.h"

#include "common/check.h"
#include "common/encoding/rows.h"
#include "kernels/cuda/packed/packed_codes.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr unsigned kThreads = 256;

LaunchShape ShapeFor(int64_t n_items) {
  return {.grid = dim3(static_cast<unsigned>(CeilDiv(n_items, kThreads))), .block = kThreads};
}

struct PackParams {
  PackedPart part;
  const unsigned char* rows;
  int64_t row_bytes;
  int32_t first_row, n_rows;
  Code code;
  int32_t scale_bytes, n_groups, group;  // for grouped codes
  bool has_zeros;
};

// A stored row.
struct StoredRow {
  const PackParams& p;
  const unsigned char* bytes;

  __device__ int Code4(int64_t at, int i) const { return bytes[at + i / 2] >> (i % 2 * 4) & 15; }
  __device__ int64_t scales_at() const { return static_cast<int64_t>(MatrixScaleBytes(p.code)); }
  __device__ int64_t zeros_at() const { return scales_at() + int64_t{p.n_groups} * p.scale_bytes; }
  __device__ int64_t codes_at() const { return zeros_at() + (p.has_zeros ? p.n_groups : 0); }

  // The block with input k, if it has `elements` in `n` bytes.
  __device__ const unsigned char* Block(int k, int elements, int n) const {
    return bytes + int64_t{k / elements} * n;
  }

  // The code of input k. Int8 and Q8_0: biased by 128.
  __device__ uint32_t CodeOf(int k) const {
    const int i = k % 32;
    switch (p.code) {
      case Code::kQ4_0:
      case Code::kIQ4_NL:
        return Block(k, 32, 18)[2 + i % 16] >> (i / 16 * 4) & 15u;
      case Code::kQ5_0: {
        const unsigned char* const b = Block(k, 32, 22);
        return (b[6 + i % 16] >> (i / 16 * 4) & 15u) | (b[2 + i / 8] >> (i % 8) & 1u) << 4;
      }
      case Code::kQ8_0:
        return Block(k, 32, 34)[2 + i] ^ 0x80u;
      case Code::kQ4_K:
      case Code::kQ5_K: {
        const bool five = p.code == Code::kQ5_K;
        const unsigned char* const b = Block(k, 256, five ? 176 : 144);
        const int group = k % 256 / 32;
        const uint32_t low = b[(five ? 48 : 16) + group / 2 * 32 + i] >> (group % 2 * 4) & 15u;
        return five ? low | (b[16 + i] >> group & 1u) << 4 : low;
      }
      case Code::kQ6_K: {
        const unsigned char* const b = Block(k, 256, 210);
        const int half = k % 256 / 128, group = k % 128 / 32;
        const uint32_t low = b[half * 64 + group % 2 * 32 + i] >> (group / 2 * 4) & 15u;
        return low | (b[128 + half * 32 + i] >> (2 * group) & 3u) << 4;
      }
      case Code::kIQ4_XS:
        return Block(k, 256, 136)[8 + k % 256 / 32 * 16 + i % 16] >> (i / 16 * 4) & 15u;
      case Code::kInt4:
      case Code::kMxFp4:
      case Code::kNvFp4:
        return static_cast<uint32_t>(Code4(codes_at(), k));
      case Code::kInt8:
        return bytes[codes_at() + k] ^ 0x80u;
      default:
        return bytes[codes_at() + k];
    }
  }

  // Copies plain scales and zeros of the group of input k. Zeros beyond the last input.
  __device__ void CopyPlain(int chunk, unsigned char* header, int row) const {
    const int k = chunk * kChunkCols;
    const bool inside = k < p.part.cols;
    const int group = chunk % kBlockChunks >> p.part.group_shift;
    const bool is_block = IsGgufBlock(p.code);
    const int source = p.group > 0 ? k / p.group : 0;
    const int n = is_block ? 2 : p.scale_bytes;
    const unsigned char* from = bytes + scales_at() + int64_t{source} * n;
    if (is_block) {
      from = Block(k, 32, p.code == Code::kQ8_0 ? 34 : p.code == Code::kQ5_0 ? 22 : 18);
    }
    unsigned char* const to = header + row * p.part.row_stride + group * n;
    for (int i = 0; i < n; ++i) to[i] = inside ? from[i] : 0;
    if (!p.has_zeros) return;
    const unsigned bias = p.code == Code::kInt8 ? 0x80 : 0;
    header[p.part.zeros_at + row * (kBlockChunks >> p.part.group_shift) + group] =
        static_cast<unsigned char>(inside ? bytes[zeros_at() + source] ^ bias : 0);
  }

  // Copies the sub-scales of a chunk of a K-quant or of NVFP4, and with the first chunk the scale
  // of the block or the matrix. Zeros beyond the last input.
  __device__ void CopySub(int chunk, unsigned char* header, int row) const {
    const int i = chunk % kBlockChunks;
    if (p.code == Code::kNvFp4) {
      const bool inside = chunk * kChunkCols < p.part.cols;
      for (int s = 0; s < 2; ++s) {
        header[16 + 16 * row + 2 * i + s] = inside ? bytes[scales_at() + 2 * chunk + s] : 0;
      }
      for (int s = 0; s < 4 && i == 0 && row == 0; ++s) header[s] = bytes[s];
      return;
    }
    if (p.code == Code::kQ6_K) {
      const unsigned char* const b = Block(chunk * kChunkCols, 256, 210);
      for (int s = 2 * i; s < 2 * i + 2; ++s) {
        header[32 + 16 * row + s] = static_cast<unsigned char>(b[192 + s] ^ 0x80u);
      }
      for (int s = 0; s < 2 && i == 0; ++s) header[2 * row + s] = b[208 + s];
      return;
    }
    if (p.code == Code::kIQ4_XS) {
      const unsigned char* const b = Block(chunk * kChunkCols, 256, 136);
      const unsigned scale =
          (b[4 + i / 2] >> (i % 2 * 4) & 15u) | (b[2 + i / 4] >> (i % 4 * 2) & 3u) << 4;
      header[32 + 8 * row + i] = static_cast<unsigned char>(scale - 32 + 128);
      for (int s = 0; s < 2 && i == 0; ++s) header[2 * row + s] = b[s];
      return;
    }
    const unsigned char* const b =
        Block(chunk * kChunkCols, 256, p.code == Code::kQ5_K ? 176 : 144);
    const unsigned char* const packed = b + 4;
    const unsigned scale =
        i < 4 ? packed[i] & 63u : (packed[i + 4] & 15u) | (packed[i - 4] >> 2 & 0x30u);
    const unsigned minimum =
        i < 4 ? packed[i + 4] & 63u : (packed[i + 4] >> 4) | (packed[i] >> 2 & 0x30u);
    header[64 + 16 * row + i] = static_cast<unsigned char>(scale);
    header[64 + 16 * row + 8 + i] = static_cast<unsigned char>(minimum);
    for (int s = 0; s < 4 && i == 0; ++s) header[4 * row + s] = b[s];
  }
};

// A thread packs the codes of one output that one lane holds of a unit. No other thread writes
// their bytes. It never calls LetNextStart(): the next kernel may read the weights at once.
template <PackedForm kForm>
__global__ void PackKernel(const PackParams p) {
  WaitForPrevious();
  const PackedPart& part = p.part;
  const int64_t item = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int c = static_cast<int>(item % 4);
  const int unit = static_cast<int>(item / 4 % part.n_units);
  const int64_t n = item / 4 / part.n_units;
  if (n >= p.n_rows) return;
  const StoredRow row{p, p.rows + n * p.row_bytes};
  const int tile = (p.first_row + static_cast<int>(n)) / kTileRows;
  const int of_tile = (p.first_row + static_cast<int>(n)) % kTileRows;
  const int lane = of_tile % 8 * 4 + c, r = of_tile / 8;
  unsigned char* const header =
      part.tiles + tile * part.tile_bytes() + int64_t{unit / kBlockUnits} * part.block_bytes();
  unsigned char* const to = header + part.header_bytes + unit % kBlockUnits * UnitBytes(kForm);
  uint32_t high[2][2] = {};  // [chunk][first and second of a pair]
  for (int j = 0; j < 2; ++j) {
    const int chunk = 2 * unit + j;
    const bool inside = chunk * kChunkCols < part.cols;
    uint32_t codes[8];
    for (int e = 0; e < 8; ++e) {
      codes[e] = inside ? row.CodeOf(chunk * kChunkCols + InputOf<kForm>(c, e)) : 0;
    }
    if constexpr (Is8Bit(kForm)) {
      uint32_t words[2];
      for (int i = 0; i < 2; ++i) {
        const uint32_t* const of = codes + 4 * i;
        words[i] = kForm == PackedForm::kFp8 ? Fp8Word(of[0], of[1], of[2], of[3])
                                             : of[0] | of[1] << 8 | of[2] << 16 | of[3] << 24;
      }
      *reinterpret_cast<uint2*>(to + 512 * j + 16 * lane + 8 * r) = make_uint2(words[0], words[1]);
    } else {
      uint32_t word = 0;
      for (int e = 0; e < 8; ++e) {
        word |= (codes[e] & 15) << (16 * (e % 2) + 4 * (e / 2));
        const int bits = kForm == PackedForm::kQ6K ? 2 : 1;
        high[j][e % 2] |= (codes[e] >> 4) << (bits * (e / 2));
      }
      *reinterpret_cast<uint32_t*>(to + 16 * lane + 4 * (2 * j + r)) = word;
    }
    if (c != 0) continue;
    if constexpr (HasSubScales(kForm)) {
      row.CopySub(chunk, header, of_tile);
    } else {
      // The group of a chunk beyond the last input may have begun before it.
      if (inside || part.group_shift == 0) row.CopyPlain(chunk, header, of_tile);
    }
  }
  for (int i = 0; i < 2; ++i) {
    if constexpr (HasFifthBit(kForm)) {
      to[512 + 4 * lane + 2 * i + r] = static_cast<unsigned char>(high[0][i] | high[1][i] << 4);
    }
    if constexpr (kForm == PackedForm::kQ6K) {
      for (int j = 0; j < 2; ++j) {
        to[512 + 8 * lane + 4 * j + 2 * i + r] = static_cast<unsigned char>(high[j][i]);
      }
    }
  }
}

struct PermuteParams {
  const int32_t* order;
  const void* from;
  void* to;
  int64_t n;
  int32_t cols;
};

template <typename Element>
__global__ void PermuteKernel(const PermuteParams p) {
  LetNextStart();
  WaitForPrevious();
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= p.n) return;
  const int64_t row = i / p.cols, col = i % p.cols;
  static_cast<Element*>(p.to)[i] = static_cast<const Element*>(p.from)[row * p.cols + p.order[col]];
}

}  // namespace

cudaError_t PackStoredRows(const Stream& stream, const PackedPart& part, const Encoding& encoding,
                           int32_t first_row, int32_t n_rows, const void* rows) {
  const auto cols = static_cast<size_t>(part.cols);
  const bool is_grouped = IsGrouped(encoding.code);
  const PackParams params{
      .part = part,
      .rows = static_cast<const unsigned char*>(rows),
      .row_bytes = static_cast<int64_t>(RowBytes(encoding, cols)),
      .first_row = first_row,
      .n_rows = n_rows,
      .code = encoding.code,
      .scale_bytes = is_grouped ? static_cast<int32_t>(ScaleBytes(encoding)) : 0,
      .n_groups = is_grouped ? static_cast<int32_t>(GroupCount(encoding, cols)) : 0,
      .group = encoding.group,
      .has_zeros = encoding.has_zeros};
  return WithForm(part.form, [&](auto type) {
    return Launch<&PackKernel<decltype(type)::kForm>>(
        stream, ShapeFor(int64_t{n_rows} * part.n_units * 4), params);
  });
}

cudaError_t PermuteInputs(const Stream& stream, const int32_t* order, const void* from,
                          size_t element_bytes, int32_t n_rows, int32_t cols, void* to) {
  const PermuteParams params{
      .order = order, .from = from, .to = to, .n = int64_t{n_rows} * cols, .cols = cols};
  if (element_bytes == sizeof(uint16_t)) {
    return Launch<&PermuteKernel<uint16_t>>(stream, ShapeFor(params.n), params);
  }
  SC_CHECK(element_bytes == sizeof(uint32_t));
  return Launch<&PermuteKernel<uint32_t>>(stream, ShapeFor(params.n), params);
}

}  // namespace stagecoach::kernels::cuda
