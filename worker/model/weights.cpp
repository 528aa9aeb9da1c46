#include "worker/model/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "common/check.h"
#include "common/config/load_config.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "common/status.h"
#include "worker/loader/check_checkpoint.h"
#include "worker/loader/weight_source.h"
#include "worker/model/check_room.h"
#include "worker/model/weight_plan.h"

namespace stagecoach::worker {
namespace {

// Rows are read in pieces of about this size. The number of rows is a multiple of 64, so that
// packed layouts get whole tiles.
constexpr int64_t kPieceBytes = 16 << 20;
constexpr int64_t kPieceRows = 64;

// Gives each weight its memory: a part of one piece, in the order of the calls, or one allocation
// each.
class WeightPlaces {
 public:
  static constexpr uint64_t kAlignment = 256;  // of an allocation's start that kernels expect
  static constexpr uint64_t RoundUp(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  // memory: absent, or as many bytes as the weights take, each rounded up.
  WeightPlaces(std::optional<kernels::Buffer> memory, kernels::Ops* ops)
      : memory_(std::move(memory)), ops_(ops) {}

  absl::StatusOr<kernels::Buffer> Next(size_t bytes) {
    if (!memory_) return ops_->Allocate(bytes);
    SC_CHECK(used_ + bytes <= memory_->bytes);
    char* const start = memory_->As<char>() + used_;
    used_ += RoundUp(bytes);
    return kernels::Buffer{std::shared_ptr<void>(memory_->data, start), bytes};
  }

 private:
  const std::optional<kernels::Buffer> memory_;
  kernels::Ops* const ops_;
  size_t used_ = 0;
};

bool Keeps(const kernels::Ops& ops, const Encoding& encoding, const MatrixPlan& matrix) {
  return matrix.is_expert ? ops.KeepsExperts(encoding, matrix.cols)
                          : ops.Keeps(encoding, matrix.cols);
}

class WeightReader {
 public:
  WeightReader(const WeightPlan& plan, WeightSource* source, kernels::Ops* ops,
               const LoadProgressFn& progress)
      : plan_(plan), source_(source), ops_(ops), progress_(progress) {
    for (size_t i = 0; i < plan.requests.size(); ++i) {
      n_bytes_total_ += static_cast<uint64_t>(plan.requests[i].rows) * FileRowBytes(i);
    }
  }

  // The stored dtype, or float32 if the parts of one matrix differ.
  DType StoredDType(const MatrixPlan& matrix) const {
    const DType first = source_->dtype(matrix.parts.front().request);
    const bool same =
        std::all_of(matrix.parts.begin(), matrix.parts.end(),
                    [&](const WeightPart& part) { return source_->dtype(part.request) == first; });
    return same ? first : DType::kF32;
  }

  // The dtype of a matrix whose parts are not kept as stored. One that is never kept becomes as the
  // model.
  DType DTypeOf(std::optional<DType> wanted, DType model_dtype, const MatrixPlan& matrix) const {
    if (wanted) return *wanted;
    const size_t request = matrix.parts.front().request;
    const std::optional<Encoding> encoding = source_->encoding(request);
    const bool expands =
        plan_.requests[request].is_split && encoding && IsQuantized(encoding->code);
    return ops_->WeightDType(expands ? model_dtype : StoredDType(matrix), model_dtype);
  }

  // The parts of a matrix that is quantized and can stay as stored. Empty for any other matrix.
  std::vector<kernels::MatrixPart> KeptParts(std::optional<DType> wanted,
                                             const MatrixPlan& matrix) const {
    std::vector<kernels::MatrixPart> parts;
    if (wanted) return parts;
    bool is_quantized = false;
    int32_t n_rows = 0;
    for (const WeightPart& part : matrix.parts) {
      const std::optional<Encoding> encoding = source_->encoding(part.request);
      if (plan_.requests[part.request].is_split) return {};
      if (!encoding || !Keeps(*ops_, *encoding, matrix) || n_rows % kernels::kPartRows != 0)
        return {};
      SC_CHECK(part.first_row == n_rows);
      parts.push_back({.rows = static_cast<int32_t>(plan_.requests[part.request].rows),
                       .encoding = *encoding,
                       .is_expert = matrix.is_expert});
      n_rows += parts.back().rows;
      is_quantized |= IsQuantized(encoding->code);
    }
    return is_quantized ? parts : std::vector<kernels::MatrixPart>();
  }

  struct OnDevice {
    Encoding encoding;  // of the first part
    uint64_t bytes = 0;
  };

  // Each weight on the device. `wanted`: as for Read.
  std::vector<OnDevice> DeviceBytes(std::optional<DType> wanted, DType model_dtype) const {
    std::vector<OnDevice> weights;
    for (const MatrixPlan& matrix : plan_.matrices) {
      const std::vector<kernels::MatrixPart> kept = KeptParts(wanted, matrix);
      if (kept.empty()) {
        const DType dtype = DTypeOf(wanted, model_dtype, matrix);
        weights.push_back({CodeOf(dtype), ops_->MatrixBytes(matrix.rows, matrix.cols, dtype)});
      } else {
        weights.push_back({kept.front().encoding, ops_->MatrixBytes(kept, matrix.cols)});
      }
    }
    for (const VectorPlan& vector : plan_.vectors) {
      weights.push_back({Code::kF32, static_cast<size_t>(vector.n) * sizeof(float)});
    }
    return weights;
  }

  // wanted: the dtype of all matrices. If absent, each matrix keeps its stored dtype, or gets the
  // one that the device prefers in a model of `model_dtype`. Gives every weight its memory from
  // `places`. is_filled: the weights are there already.
  absl::Status Read(std::optional<DType> wanted, DType model_dtype, WeightPlaces places,
                    bool is_filled) {
    SC_RETURN_IF_ERROR(Report(is_filled ? n_bytes_total_ : 0));
    for (const MatrixPlan& matrix : plan_.matrices) {
      const std::vector<kernels::MatrixPart> kept = KeptParts(wanted, matrix);
      if (kept.empty()) {
        const DType dtype = DTypeOf(wanted, model_dtype, matrix);
        const size_t bytes = ops_->MatrixBytes(matrix.rows, matrix.cols, dtype);
        SC_ASSIGN_OR_RETURN(kernels::Buffer memory, places.Next(bytes));
        *matrix.target = {std::move(memory), dtype, matrix.rows, matrix.cols};
      } else {
        const size_t bytes = ops_->MatrixBytes(kept, matrix.cols);
        SC_ASSIGN_OR_RETURN(kernels::Buffer memory, places.Next(bytes));
        SC_ASSIGN_OR_RETURN(*matrix.target, ops_->MatrixOf(std::move(memory), kept, matrix.cols));
      }
      if (is_filled) continue;
      for (const WeightPart& part : matrix.parts) {
        SC_RETURN_IF_ERROR(ReadMatrixPart(matrix, part, !kept.empty()));
      }
    }
    for (const VectorPlan& vector : plan_.vectors) {
      SC_ASSIGN_OR_RETURN(*vector.target,
                          places.Next(static_cast<size_t>(vector.n) * sizeof(float)));
      if (is_filled) continue;
      for (const WeightPart& part : vector.parts) SC_RETURN_IF_ERROR(ReadVectorPart(vector, part));
      if (vector.parts.empty()) Fill(vector);
    }
    return ops_->Synchronize();
  }

 private:
  absl::Status ReadMatrixPart(const MatrixPlan& matrix, const WeightPart& part, bool is_kept) {
    const TensorRequest& request = plan_.requests[part.request];
    const int64_t row_bytes = static_cast<int64_t>(FileRowBytes(part.request));
    if (part.n_rows > 0) {
      const RowsView view = source_->Rows(part.request, part.from_row, part.n_rows);
      if (part.transposed) {
        PackTransposed(matrix, part, view);
      } else {
        ops_->PackRows(*matrix.target, part.first_row, part.n_rows, view.data, view.dtype);
      }
      return Report(static_cast<uint64_t>(part.n_rows * row_bytes));
    }
    const int64_t piece = std::max(kPieceBytes / row_bytes / kPieceRows, int64_t{1}) * kPieceRows;
    for (int64_t row = 0; row < request.rows; row += piece) {
      const int64_t n_rows = std::min(piece, request.rows - row);
      const int32_t to = part.first_row + static_cast<int32_t>(row);
      if (is_kept) {
        ops_->PackStored(*matrix.target, to, static_cast<int32_t>(n_rows),
                         source_->StoredRows(part.request, row, n_rows));
      } else {
        const RowsView view = source_->Rows(part.request, row, n_rows);
        ops_->PackRows(*matrix.target, to, static_cast<int32_t>(n_rows), view.data, view.dtype);
      }
      SC_RETURN_IF_ERROR(Report(static_cast<uint64_t>(n_rows * row_bytes)));
    }
    const std::optional<Encoding> encoding = source_->encoding(part.request);
    if (is_kept && encoding && encoding->is_permuted) {
      ops_->PackInputOrder(*matrix.target, part.first_row, source_->InputOrder(part.request));
    }
    return absl::OkStatus();
  }

  // rows: [part.n_rows, request.cols], which become columns of the matrix.
  void PackTransposed(const MatrixPlan& matrix, const WeightPart& part, const RowsView& rows) {
    const auto n_rows = static_cast<size_t>(plan_.requests[part.request].cols);
    const auto n_cols = static_cast<size_t>(part.n_rows);
    std::vector<unsigned char> columns(n_rows * n_cols * DTypeBytes(rows.dtype));
    for (size_t row = 0; row < n_rows; ++row) {
      for (size_t col = 0; col < n_cols; ++col) {
        StoreElement(columns.data(), rows.dtype, row * n_cols + col,
                     LoadElement(rows.data, rows.dtype, col * n_rows + row));
      }
    }
    ops_->PackRows(*matrix.target, part.first_row, static_cast<int32_t>(n_rows), columns.data(),
                   rows.dtype);
  }

  absl::Status ReadVectorPart(const VectorPlan& vector, const WeightPart& part) {
    const TensorRequest& request = plan_.requests[part.request];
    const RowsView view = source_->Rows(part.request, 0, 1);
    std::vector<float> values(static_cast<size_t>(request.cols));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = vector.factor * LoadElement(view.data, view.dtype, i);
    }
    ops_->Upload(values.data(), vector.target->As<float>() + part.first_row,
                 values.size() * sizeof(float));
    return Report(FileRowBytes(part.request));
  }

  void Fill(const VectorPlan& vector) {
    const std::vector<float> values(static_cast<size_t>(vector.n), vector.factor);
    ops_->Upload(values.data(), vector.target->As<float>(), values.size() * sizeof(float));
  }

  // Bytes per row in the file, or of the generated row.
  uint64_t FileRowBytes(size_t request) const {
    const uint64_t cols = static_cast<uint64_t>(plan_.requests[request].cols);
    const std::optional<Encoding> encoding = source_->encoding(request);
    if (!encoding) return cols * DTypeBytes(source_->dtype(request));
    return RowBytes(*encoding, cols);
  }

  absl::Status Report(uint64_t n_bytes) {
    n_bytes_done_ += n_bytes;
    return progress_ ? progress_(n_bytes_done_, n_bytes_total_) : absl::OkStatus();
  }

  const WeightPlan& plan_;
  WeightSource* source_;
  kernels::Ops* ops_;
  const LoadProgressFn& progress_;
  uint64_t n_bytes_done_ = 0, n_bytes_total_ = 0;
};

// A device that would expand quantized weights gains nothing from --quantize.
absl::Status CheckKept(const WeightPlan& plan, const WeightSource& source,
                       const kernels::Ops& ops) {
  for (const MatrixPlan& matrix : plan.matrices) {
    const std::optional<Encoding> encoding = source.encoding(matrix.parts.front().request);
    if (!encoding || !IsQuantized(encoding->code)) continue;
    if (Keeps(ops, *encoding, matrix)) continue;
    return absl::UnimplementedError(fmt::format("--quantize: {} does not compute on {} weights{}",
                                                ops.Describe(), EncodingName(*encoding),
                                                matrix.is_expert ? " of experts" : ""));
  }
  return absl::OkStatus();
}

std::vector<TensorRequest> WholeModelRequests(StageModelOptions options, const ModelSpec& spec) {
  options.first_layer = 0;
  options.n_layers = spec.n_layers();
  options.is_first = options.is_last = true;
  StageWeights targets;
  return PlanWeights(options, spec, &targets).requests;
}

}  // namespace

absl::StatusOr<std::unique_ptr<StageWeights>> LoadWeights(const StageModelOptions& options,
                                                          const ModelSpec& spec, kernels::Ops* ops,
                                                          const LoadProgressFn& progress) {
  auto weights = std::make_unique<StageWeights>();
  const WeightPlan plan = PlanWeights(options, spec, weights.get());
  SC_RETURN_IF_ERROR(CheckLoadConfig(options.config));
  const std::optional<Code> quantize_to = QuantizeTo(options.config);
  std::unique_ptr<WeightSource> source;
  if (options.config.load_format() == v1::LOAD_FORMAT_DUMMY) {
    source = MakeDummyWeights(spec.stored_dtype, plan.requests);
    if (quantize_to) {
      SC_ASSIGN_OR_RETURN(source, QuantizeLinears(std::move(source), *quantize_to, plan.requests));
    }
  } else {
    const CheckpointOptions checkpoint(options.model_dir, options.config.adapter_dir(),
                                       quantize_to);
    SC_RETURN_IF_ERROR(CheckNames(checkpoint, spec, WholeModelRequests(options, spec)));
    SC_ASSIGN_OR_RETURN(source, OpenCheckpoint(checkpoint, plan.requests));
  }
  if (quantize_to) SC_RETURN_IF_ERROR(CheckKept(plan, *source, *ops));
  WeightReader reader(plan, source.get(), ops, progress);
  const std::optional<DType> dtype = DTypeOf(options.config);
  uint64_t n_rounded = 0;
  for (const auto& [encoding, n] : reader.DeviceBytes(dtype, spec.stored_dtype)) {
    weights->n_bytes += n;
    weights->bytes_by_encoding[EncodingName(encoding)] += n;
    n_rounded += WeightPlaces::RoundUp(n);
  }
  const LastingMemory& lasting = options.weights;
  std::optional<kernels::Buffer> memory;
  if (lasting.find) memory = lasting.find(n_rounded);
  const bool is_filled = memory.has_value();
  if (!is_filled) {
    SC_RETURN_IF_ERROR(
        CheckRoom(*ops, "weights", weights->n_bytes, "spread the model over more stages"));
    if (lasting.make) {
      SC_ASSIGN_OR_RETURN(memory, lasting.make(n_rounded));
    }
  }
  SC_RETURN_IF_ERROR(reader.Read(dtype, spec.stored_dtype, WeightPlaces(memory, ops), is_filled));
  if (memory && !is_filled) ops->Settle(*memory);
  return weights;
}

}  // namespace stagecoach::worker
