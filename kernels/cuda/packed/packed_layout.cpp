#include "kernels/cuda/packed/packed_layout.h"

#include <bit>

#include "common/check.h"
#include "common/model/device_support.h"

namespace stagecoach::kernels::cuda {
namespace {

PackedForm FormFor(Code code) {
  switch (code) {
    case Code::kQ4_0:
    case Code::kInt4:
      return PackedForm::kInt4;
    case Code::kQ5_0:
      return PackedForm::kInt5;
    case Code::kQ8_0:
    case Code::kInt8:
      return PackedForm::kInt8;
    case Code::kFp8:
      return PackedForm::kFp8;
    case Code::kMxFp4:
      return PackedForm::kMxFp4;
    case Code::kIQ4_NL:
      return PackedForm::kIQ4NL;
    case Code::kIQ4_XS:
      return PackedForm::kIQ4XS;
    case Code::kNvFp4:
      return PackedForm::kNvFp4;
    case Code::kQ4_K:
      return PackedForm::kQ4K;
    case Code::kQ5_K:
      return PackedForm::kQ5K;
    case Code::kQ6_K:
      return PackedForm::kQ6K;
    default:
      SC_CHECK(IsQuantized(code));
      return PackedForm::kInt4;
  }
}

ScaleKind KindOf(const Encoding& encoding) {
  if (IsGgufBlock(encoding.code)) return ScaleKind::kF16;
  if (encoding.code == Code::kMxFp4) return ScaleKind::kE8M0;
  if (encoding.scale == DType::kF32) return ScaleKind::kF32;
  return encoding.scale == DType::kBF16 ? ScaleKind::kBF16 : ScaleKind::kF16;
}

int32_t SubScaledHeaderBytes(PackedForm form) {
  if (form == PackedForm::kNvFp4) return 16 + kTileRows * 16;
  if (form == PackedForm::kIQ4XS) return kTileRows * (2 + 8);
  return kTileRows * (HasMinima(form) ? 4 + 16 : 2 + 16);
}

constexpr int32_t RoundUp16(int32_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

PackedPart PackedPartOf(const Encoding& encoding, int32_t rows, int32_t cols) {
  SC_CHECK(GpusKeep(encoding, cols));
  PackedPart part{.tiles = nullptr,
                  .order = nullptr,
                  .rows = rows,
                  .cols = cols,
                  .n_units = (cols + kUnitCols - 1) / kUnitCols,
                  .header_bytes = 0,
                  .group_shift = 0,
                  .row_stride = 0,
                  .zeros_at = 0,
                  .scale_kind = KindOf(encoding),
                  .form = FormFor(encoding.code)};
  if (HasSubScales(part.form)) {
    part.header_bytes = SubScaledHeaderBytes(part.form);
    return part;
  }
  if (IsGrouped(encoding.code)) {
    const bool within = encoding.group > 0 && encoding.group < kBlockCols;
    const int32_t n_chunks = within ? encoding.group / kChunkCols : kBlockChunks;
    part.group_shift = std::countr_zero(static_cast<uint32_t>(n_chunks));
  }
  const int32_t n_groups = kBlockChunks >> part.group_shift;
  const auto scale_bytes =
      n_groups *
      static_cast<int32_t>(IsGgufBlock(encoding.code) ? sizeof(uint16_t) : ScaleBytes(encoding));
  if (!encoding.rows_share_scales) part.row_stride = scale_bytes;
  part.header_bytes = RoundUp16((encoding.rows_share_scales ? 1 : kTileRows) * scale_bytes);
  if (encoding.has_zeros) {
    part.zeros_at = part.header_bytes;
    part.header_bytes += n_groups * kTileRows;
  }
  SC_CHECK(part.header_bytes <= kMostHeaderBytes);
  return part;
}

}  // namespace stagecoach::kernels::cuda
