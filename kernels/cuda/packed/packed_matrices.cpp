#include "kernels/cuda/packed/packed_matrices.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "common/model/device_support.h"
#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "kernels/cuda/fp8/fp8_norm.h"
#include "kernels/cuda/fp8/fp8_rows.h"
#include "kernels/cuda/fp8/fp8_skinny.h"
#include "kernels/cuda/gemm/biased_gemm.h"
#include "kernels/cuda/packed/expand.h"
#include "kernels/cuda/packed/hopper_rows.h"
#include "kernels/cuda/packed/many_rows.h"
#include "kernels/cuda/packed/one_row.h"
#include "kernels/cuda/packed/pack.h"
#include "kernels/cuda/packed/packed_scratch.h"

namespace stagecoach::kernels::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t RoundUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// A part with its addresses.
struct Place {
  std::optional<Fp8Part> fp8;  // with plain rows; else `part` is valid
  PackedPart part;
  Encoding encoding;
  int32_t first_row = 0;
};

size_t PartBytes(const Place& place) {
  if (place.fp8) return Fp8PartBytes(place.fp8->rows, place.fp8->cols);
  return static_cast<size_t>(place.part.n_tiles() * place.part.tile_bytes());
}

size_t OrderBytes(const Encoding& encoding, int32_t cols) {
  return encoding.is_permuted ? RoundUp(static_cast<size_t>(cols) * sizeof(int32_t)) : 0;
}

// Calls call(place) for each part. memory: of the matrix; null: addresses have no meaning.
template <typename Call>
void ForEachPart(std::span<const MatrixPart> parts, int32_t cols, unsigned char* memory,
                 const Call& call) {
  size_t at = 0;
  int32_t first_row = 0;
  for (const MatrixPart& matrix_part : parts) {
    Place place{.encoding = matrix_part.encoding, .first_row = first_row};
    if (HasFp8Rows(matrix_part, cols)) {
      place.fp8 = Fp8PartOf(matrix_part.rows, cols, memory + at);
    } else {
      place.part = PackedPartOf(matrix_part.encoding, matrix_part.rows, cols);
      if (matrix_part.encoding.is_permuted) {
        place.part.order = reinterpret_cast<int32_t*>(memory + at);
      }
      at += OrderBytes(matrix_part.encoding, cols);
      place.part.tiles = memory + at;
    }
    at += RoundUp(PartBytes(place));
    first_row += matrix_part.rows;
    call(place);
  }
}

template <typename Call>
void ForEachPart(const Matrix& matrix, const Call& call) {
  ForEachPart(matrix.parts, matrix.cols, matrix.buffer.As<unsigned char>(), call);
}

Place PartWith(const Matrix& matrix, int32_t row) {
  Place found;
  ForEachPart(matrix, [&](const Place& place) {
    if (place.first_row <= row) found = place;
  });
  return found;
}

void* Advance(void* address, size_t n, DType dtype) {
  return static_cast<unsigned char*>(address) + n * DTypeBytes(dtype);
}
const void* Advance(const void* address, size_t n, DType dtype) {
  return static_cast<const unsigned char*>(address) + n * DTypeBytes(dtype);
}

}  // namespace

size_t PackedMatrices::Bytes(std::span<const MatrixPart> parts, int32_t cols) {
  size_t bytes = 0;
  ForEachPart(parts, cols, nullptr, [&](const Place& place) {
    bytes += OrderBytes(place.encoding, cols) + RoundUp(PartBytes(place));
  });
  return bytes;
}

absl::StatusOr<Matrix> PackedMatrices::MatrixOf(Buffer memory, std::span<const MatrixPart> parts,
                                                int32_t cols) {
  SC_CHECK(!parts.empty() && cols > 0);
  Matrix matrix{.buffer = std::move(memory), .cols = cols};
  for (const MatrixPart& part : parts) {
    SC_CHECK(part.rows > 0 && matrix.rows % kPartRows == 0);
    SC_CHECK(GpusKeep(part.encoding, cols));
    matrix.rows += part.rows;
    if (!matrix.parts.empty() && matrix.parts.back().encoding == part.encoding &&
        !part.encoding.is_permuted) {
      matrix.parts.back().rows += part.rows;  // one product instead of two
    } else {
      matrix.parts.push_back(part);
    }
  }
  SC_RETURN_IF_ERROR(Reserve(matrix));
  return matrix;
}

absl::Status PackedMatrices::Reserve(const Matrix& matrix) {
  const PackedScratch needs =
      PackedScratchOf(matrix.parts, matrix.cols, stream_->is_hopper, batch_invariant_);
  SC_RETURN_IF_ERROR(Grow(expanded_, needs.expanded));
  SC_RETURN_IF_ERROR(Grow(quantized_, needs.quantized));
  return Grow(permuted_, needs.permuted);
}

absl::Status PackedMatrices::Grow(Buffer& buffer, size_t bytes) {
  if (buffer.bytes >= bytes) return absl::OkStatus();
  // Queued work may still use the old memory.
  SC_RETURN_IF_ERROR(ToStatus(cudaStreamSynchronize(stream_->handle), "the GPU failed"));
  buffer = {};
  SC_ASSIGN_OR_RETURN(buffer, AllocateDevice(bytes));
  return absl::OkStatus();
}

size_t PackedMatrices::StoredRowBytes(const Matrix& matrix, int32_t first_row) {
  return RowBytes(PartWith(matrix, first_row).encoding, static_cast<size_t>(matrix.cols));
}

absl::Status PackedMatrices::Pack(const Matrix& matrix, int32_t first_row, int32_t n_rows,
                                  const void* rows) {
  const Place place = PartWith(matrix, first_row);
  const int32_t first = first_row - place.first_row;
  SC_CHECK(first + n_rows <= (place.fp8 ? place.fp8->rows : place.part.rows));
  if (place.fp8) {
    return ToStatus(PackFp8Rows(*stream_, *place.fp8, first, n_rows, rows), "cannot pack weights");
  }
  return ToStatus(PackStoredRows(*stream_, place.part, place.encoding, first, n_rows, rows),
                  "cannot pack weights");
}

int32_t* PackedMatrices::OrderOf(const Matrix& matrix, int32_t first_row) {
  const Place place = PartWith(matrix, first_row);
  SC_CHECK(!place.fp8 && place.part.order != nullptr);
  return const_cast<int32_t*>(place.part.order);
}

std::vector<PackedPlace> PackedMatrices::PlacesOf(const Matrix& matrix) {
  std::vector<PackedPlace> places;
  ForEachPart(matrix, [&](const Place& place) {
    SC_CHECK(!place.fp8);
    places.push_back({place.part, place.first_row});
  });
  return places;
}

absl::StatusOr<Buffer> PackedMatrices::ExpandedMemory(size_t bytes) {
  SC_RETURN_IF_ERROR(Grow(expanded_, bytes));
  return expanded_;
}

int32_t PackedMatrices::MostPackedRows(const Matrix& matrix) const {
  int32_t most = std::numeric_limits<int32_t>::max();
  ForEachPart(matrix, [&](const Place& place) {
    const bool suits =
        !place.fp8 && SuitsHopperRows(*stream_, place.part) && place.part.order == nullptr;
    most = std::min(most, suits ? MostHopperRows(place.part) : kMostPackedRows);
  });
  return most;
}

bool PackedMatrices::Expands(const GemmArgs& args) const {
  return !batch_invariant_ && args.x.dtype != DType::kF32 &&
         args.n_rows > MostPackedRows(*args.w) &&
         ExpandedBytes(args.w->parts, args.w->cols) <= static_cast<int64_t>(expanded_.bytes);
}

absl::Status PackedMatrices::MultiplyExpanded(const GemmArgs& args, Gemms& gemms) {
  absl::Status status;
  ForEachPart(*args.w, [&](const Place& place) {
    void* const to = Advance(
        expanded_.data.get(),
        static_cast<size_t>(place.first_row) * static_cast<size_t>(args.w->cols), args.x.dtype);
    if (!status.ok()) return;
    status = ToStatus(place.fp8 ? ExpandFp8Rows(*stream_, *place.fp8, args.x.dtype, to)
                                : Expand(*stream_, place.part, args.x.dtype, to),
                      "Gemm");
  });
  SC_RETURN_IF_ERROR(status);
  const Matrix expanded{expanded_, args.x.dtype, args.w->rows, args.w->cols};
  GemmArgs product = args;
  product.w = &expanded;
  return BiasedGemm(*stream_, gemms, product);
}

// Not in batch-invariant mode: products with few rows add in another order.
bool PackedMatrices::InFp8(const Matrix& matrix) const {
  bool all = !batch_invariant_;
  ForEachPart(matrix, [&](const Place& place) {
    all = all && place.fp8 && MultipliesInFp8(*stream_, *place.fp8);
  });
  return all;
}

Fp8Inputs PackedMatrices::Quantized(int32_t cols) const {
  auto* const codes = quantized_.As<unsigned char>();
  return {codes,
          reinterpret_cast<float*>(codes + size_t{kQuantizedRows} * static_cast<size_t>(cols))};
}

cudaError_t PackedMatrices::Quantize(const NormArgs* norm, const GemmArgs& args, int32_t first_row,
                                     int32_t n_rows) const {
  const size_t first = static_cast<size_t>(first_row) * static_cast<size_t>(args.w->cols);
  const Fp8Inputs to = Quantized(args.w->cols);
  if (norm == nullptr) {
    const ConstAct x(Advance(args.x.data, first, args.x.dtype), args.x.dtype);
    return QuantizeFp8Rows(*stream_, x, n_rows, args.w->cols, to);
  }
  NormArgs rows = *norm;
  rows.x.data = Advance(norm->x.data, first, norm->x.dtype);
  rows.n_rows = n_rows;
  return QuantizeNormedFp8Rows(*stream_, rows, to);
}

absl::Status PackedMatrices::MultiplyInFp8(const NormArgs* norm, const GemmArgs& args,
                                           const ActivationArgs* activation, Gemms& gemms) {
  const auto rows = static_cast<size_t>(args.w->rows);
  for (int32_t row = 0; row < args.n_rows; row += kQuantizedRows) {
    const int32_t n_rows = std::min(kQuantizedRows, args.n_rows - row);
    const auto first = static_cast<size_t>(row);
    SC_RETURN_IF_ERROR(ToStatus(Quantize(norm, args, row, n_rows), "Gemm"));
    absl::Status status;
    ForEachPart(*args.w, [&](const Place& place) {
      if (!status.ok()) return;
      void* const y =
          Advance(args.y.data, first * rows + static_cast<size_t>(place.first_row), args.y.dtype);
      const Fp8GemmArgs product{.x = Quantized(args.w->cols),
                                .w = *place.fp8,
                                .y = {y, args.y.dtype},
                                .n_rows = n_rows,
                                .y_stride = args.w->rows,
                                .add_to_y = args.add_to_y};
      status = activation == nullptr ? gemms.RunFp8(product)
                                     : ActivateInFp8(product, *activation, row, gemms);
    });
    SC_RETURN_IF_ERROR(status);
  }
  if (args.bias == nullptr) return absl::OkStatus();
  return ToStatus(AddBias(*stream_, args.y, args.bias, args.n_rows, args.w->rows), "Gemm");
}

absl::Status PackedMatrices::ActivateInFp8(const Fp8GemmArgs& product,
                                           const ActivationArgs& activation, int32_t first_row,
                                           Gemms& gemms) const {
  ActivationArgs rows = activation;
  rows.x = product.y;
  rows.out.data = Advance(activation.out.data,
                          static_cast<size_t>(first_row) * static_cast<size_t>(activation.width),
                          activation.out.dtype);
  rows.n_rows = product.n_rows;
  SC_ASSIGN_OR_RETURN(const bool is_done, gemms.RunGatedFp8(product, rows));
  if (is_done) return absl::OkStatus();
  SC_RETURN_IF_ERROR(gemms.RunFp8(product));
  return ToStatus(Activate(*stream_, rows), "Activate");
}

absl::StatusOr<bool> PackedMatrices::Fused(const NormArgs* norm, const GemmArgs& gemm,
                                           const ActivationArgs* activation, Gemms& gemms) {
  if (batch_invariant_ || gemm.n_rows == 0) return false;
  if (FusesPacked(norm, gemm, activation)) {
    SC_RETURN_IF_ERROR(MultiplyFused(norm, gemm, activation));
    return true;
  }
  const bool is_one = gemm.w->parts.size() == 1;
  if (gemm.n_rows > kMostFewFp8Rows && gemm.x.dtype != DType::kF32 && InFp8(*gemm.w)) {
    if ((norm != nullptr && !HasNormedFp8Rows(*norm)) ||
        (activation != nullptr && (!is_one || gemm.bias != nullptr))) {
      return false;
    }
    SC_RETURN_IF_ERROR(MultiplyInFp8(norm, gemm, activation, gemms));
    return true;
  }
  if (!is_one) return false;
  const Place place = PartWith(*gemm.w, 0);
  if (!place.fp8) return false;
  const Fp8Fused fused{.w = *place.fp8, .norm = norm, .gemm = &gemm, .activation = activation};
  if (!HasFp8Fused(fused)) return false;
  SC_RETURN_IF_ERROR(ToStatus(RunFp8Fused(*stream_, fused), "Gemm"));
  return true;
}

absl::Status PackedMatrices::MultiplyFewRows(const FusedProduct& fused, DType type) const {
  const bool is_bf16 = type == DType::kBF16;
  if (!batch_invariant_ && SuitsOneRow(*stream_, fused)) {
    return ToStatus((is_bf16 ? OneRowBF16 : OneRowF16)(*stream_, fused), "Gemm");
  }
  return ToStatus((is_bf16 ? FewRowsBF16 : FewRowsF16)(*stream_, fused), "Gemm");
}

absl::Status PackedMatrices::MultiplyPart(const PackedProduct& product, DType type) const {
  const bool is_bf16 = type == DType::kBF16;
  if (type == DType::kF32) return ToStatus(PlainPackedProduct(*stream_, product), "Gemm");
  const bool has_few_rows = batch_invariant_ || product.n_rows <= kMostFewRows;
  if (!has_few_rows && SuitsHopperRows(*stream_, product.w)) {
    return ToStatus((is_bf16 ? HopperRowsBF16 : HopperRowsF16)(*stream_, {.product = product},
                                                               ChooseHopperRows(product.n_rows)),
                    "Gemm");
  }
  if (has_few_rows || !SuitsManyRows(*stream_, product.w)) {
    return MultiplyFewRows({.product = product}, type);
  }
  const auto multiply = is_bf16 ? ManyRowsBF16 : ManyRowsF16;
  PackedProduct piece = product;
  for (int32_t row = 0; row < product.n_rows; row += kMostManyRows) {
    const auto first = static_cast<size_t>(row);
    piece.n_rows = std::min(kMostManyRows, product.n_rows - row);
    piece.x = Advance(product.x, first * static_cast<size_t>(product.w.cols), type);
    piece.y = Advance(product.y, first * static_cast<size_t>(product.y_stride),
                      product.y_is_float ? DType::kF32 : type);
    SC_RETURN_IF_ERROR(ToStatus(multiply(*stream_, piece), "Gemm"));
  }
  return absl::OkStatus();
}

bool PackedMatrices::FusesPacked(const NormArgs* norm, const GemmArgs& gemm,
                                 const ActivationArgs* activation) const {
  if (gemm.x.dtype == DType::kF32) return false;
  bool is_packed = true;
  ForEachPart(*gemm.w, [&](const Place& place) { is_packed &= !place.fp8; });
  if (!is_packed) return false;
  bool suits = gemm.n_rows <= kMostFewRows;
  if (!suits && gemm.n_rows <= MostPackedRows(*gemm.w)) {
    suits = true;
    ForEachPart(*gemm.w,
                [&](const Place& place) { suits &= SuitsHopperRows(*stream_, place.part); });
  }
  if (!suits) return false;
  if (norm != nullptr && !HasRowNorm(*norm, gemm)) return false;
  const std::vector<MatrixPart>& parts = gemm.w->parts;
  if (std::any_of(parts.begin(), parts.end(),
                  [](const MatrixPart& part) { return part.encoding.is_permuted; })) {
    return false;
  }
  return activation == nullptr ||
         (parts.size() == 1 && activation->gated && activation->clamped.limit == 0 &&
          gemm.bias == nullptr && !gemm.add_to_y && gemm.w->rows == 2 * activation->width &&
          activation->width % kTileRows == 0 && activation->out.dtype == gemm.x.dtype &&
          gemm.y.dtype == gemm.x.dtype);
}

absl::Status PackedMatrices::MultiplyFused(const NormArgs* norm, const GemmArgs& gemm,
                                           const ActivationArgs* activation) const {
  const bool is_bf16 = gemm.x.dtype == DType::kBF16;
  const Act y = activation != nullptr ? activation->out : gemm.y;
  absl::Status status;
  ForEachPart(*gemm.w, [&](const Place& place) {
    if (!status.ok()) return;
    const auto first = static_cast<size_t>(place.first_row);
    FusedProduct fused{
        .product = {.w = place.part,
                    .x = gemm.x.data,
                    .bias = gemm.bias != nullptr ? gemm.bias + place.first_row : nullptr,
                    .y = Advance(y.data, first, y.dtype),
                    .n_rows = gemm.n_rows,
                    .y_stride = gemm.w->rows,
                    .add_to_y = gemm.add_to_y,
                    .y_is_float = y.dtype == DType::kF32}};
    if (norm != nullptr) fused.norm = RowNormOf(*norm);
    if (activation != nullptr) {
      fused.is_gated = true;
      fused.activation = activation->kind;
      fused.product.y_stride = activation->width;
    }
    if (gemm.n_rows <= kMostFewRows) {
      status = MultiplyFewRows(fused, gemm.x.dtype);
    } else {
      status = ToStatus((is_bf16 ? HopperRowsBF16 : HopperRowsF16)(*stream_, fused,
                                                                   ChooseHopperRows(gemm.n_rows)),
                        "Gemm");
    }
  });
  return status;
}

absl::Status PackedMatrices::Gemm(const GemmArgs& args, Gemms& gemms) {
  const DType type = args.x.dtype;
  SC_CHECK(args.y.dtype == DType::kF32 || args.y.dtype == type);
  if (type != DType::kF32 && args.n_rows > kMostFewFp8Rows && InFp8(*args.w)) {
    return MultiplyInFp8(/*norm=*/nullptr, args, /*activation=*/nullptr, gemms);
  }
  if (Expands(args)) return MultiplyExpanded(args, gemms);
  absl::Status status;
  ForEachPart(*args.w, [&](const Place& place) {
    if (!status.ok()) return;
    const auto cols = static_cast<size_t>(args.w->cols), rows = static_cast<size_t>(args.w->rows);
    const float* const bias = args.bias != nullptr ? args.bias + place.first_row : nullptr;
    if (place.fp8) {
      const Fp8Product product{
          .w = *place.fp8,
          .x = args.x,
          .bias = bias,
          .y = {Advance(args.y.data, static_cast<size_t>(place.first_row), args.y.dtype),
                args.y.dtype},
          .n_rows = args.n_rows,
          .y_stride = args.w->rows,
          .add_to_y = args.add_to_y};
      status = ToStatus(type == DType::kF32 ? PlainFp8Product(*stream_, product)
                                            : Fp8Skinny(*stream_, product, batch_invariant_),
                        "Gemm");
      return;
    }
    const int32_t most = place.part.order != nullptr ? kPermutedRows : args.n_rows;
    for (int32_t row = 0; row < args.n_rows && status.ok(); row += most) {
      const int32_t n_rows = std::min(most, args.n_rows - row);
      const size_t first = static_cast<size_t>(row);
      const void* x = Advance(args.x.data, first * cols, type);
      if (place.part.order != nullptr) {
        status = ToStatus(PermuteInputs(*stream_, place.part.order, x, DTypeBytes(type), n_rows,
                                        args.w->cols, permuted_.data.get()),
                          "Gemm");
        if (!status.ok()) return;
        x = permuted_.data.get();
      }
      status = MultiplyPart(
          {.w = place.part,
           .x = x,
           .bias = bias,
           .y = Advance(args.y.data, first * rows + static_cast<size_t>(place.first_row),
                        args.y.dtype),
           .n_rows = n_rows,
           .y_stride = args.w->rows,
           .add_to_y = args.add_to_y,
           .y_is_float = args.y.dtype == DType::kF32},
          type);
    }
  });
  return status;
}

absl::Status PackedMatrices::Embed(const EmbedArgs& args) const {
  SC_CHECK(args.table != nullptr && args.position_table == nullptr);
  absl::Status status;
  ForEachPart(*args.table, [&](const Place& place) {
    if (!status.ok()) return;
    if (place.fp8) {
      status = ToStatus(EmbedFp8Rows(*stream_, {.table = *place.fp8,
                                                .first_row = place.first_row,
                                                .ids = args.ids,
                                                .scale = args.scale,
                                                .out = args.out,
                                                .n_tokens = args.n_tokens}),
                        "Embed");
      return;
    }
    status = ToStatus(EmbedPacked(*stream_, {.table = place.part,
                                             .first_row = place.first_row,
                                             .ids = args.ids,
                                             .scale = args.scale,
                                             .out = args.out,
                                             .n_tokens = args.n_tokens}),
                      "Embed");
  });
  return status;
}

}  // namespace stagecoach::kernels::cuda
