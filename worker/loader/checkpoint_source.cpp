#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "common/check.h"
#include "common/status.h"
#include "worker/loader/checkpoint_files.h"
#include "worker/loader/tensor_problems.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kMaxProblemLines = 20;

std::optional<DType> SupportedDType(std::string_view name) {
  if (name == "F32") return DType::kF32;
  if (name == "BF16") return DType::kBF16;
  if (name == "F16") return DType::kF16;
  return std::nullopt;
}

struct Placed {
  std::shared_ptr<SafetensorsFile> file;
  uint64_t begin = 0, end = 0;  // bytes of the file
  DType dtype = DType::kF32;
  uint64_t row_bytes = 0;  // of the request
  bool transposed = false;
};

// to: [n_rows, n_cols], from: columns [first_row, first_row + n_rows) of [n_cols, from_cols]
template <typename Element>
void CopyColumns(const std::byte* from, uint64_t from_cols, uint64_t first_row, uint64_t n_rows,
                 uint64_t n_cols, std::byte* to) {
  constexpr uint64_t kTile = 64;  // columns whose cache lines are still there for the next row
  for (uint64_t tile = 0; tile < n_cols; tile += kTile) {
    const uint64_t end = std::min(tile + kTile, n_cols);
    for (uint64_t row = 0; row < n_rows; ++row) {
      for (uint64_t col = tile; col < end; ++col) {
        std::memcpy(to + (row * n_cols + col) * sizeof(Element),
                    from + (col * from_cols + first_row + row) * sizeof(Element), sizeof(Element));
      }
    }
  }
}

class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(std::vector<Placed> tensors) : tensors_(std::move(tensors)) {}
  ~CheckpointSource() override { ReleaseLast(); }

  DType dtype(size_t request) const override { return tensors_[request].dtype; }

  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    ReleaseLast();
    const Placed& tensor = tensors_[request];
    if (tensor.transposed) return TransposedRows(tensor, first_row, n_rows);
    const uint64_t begin = tensor.begin + static_cast<uint64_t>(first_row) * tensor.row_bytes;
    const uint64_t n_bytes = static_cast<uint64_t>(n_rows) * tensor.row_bytes;
    SC_CHECK(begin >= tensor.begin && begin + n_bytes <= tensor.end);
    // The piece asked for and the next one, so that the disk works while this one is converted.
    tensor.file->WillNeed(begin, std::min(begin + 2 * n_bytes, tensor.end));
    last_file_ = tensor.file;
    last_begin_ = begin;
    last_end_ = begin + n_bytes;
    const std::byte* data = tensor.file->data() + begin;
    if (reinterpret_cast<uintptr_t>(data) % DTypeBytes(tensor.dtype) == 0) {
      return {data, tensor.dtype};
    }
    // The format does not promise alignment.
    copy_.resize(n_bytes / sizeof(float) + 1);
    std::memcpy(copy_.data(), data, n_bytes);
    return {copy_.data(), tensor.dtype};
  }

 private:
  RowsView TransposedRows(const Placed& tensor, int64_t first_row, int64_t n_rows) {
    const uint64_t element = DTypeBytes(tensor.dtype);
    const uint64_t n_cols = tensor.row_bytes / element;
    const uint64_t all_rows = (tensor.end - tensor.begin) / tensor.row_bytes;
    const uint64_t first = static_cast<uint64_t>(first_row), n = static_cast<uint64_t>(n_rows);
    SC_CHECK(first + n <= all_rows);
    copy_.resize(n * tensor.row_bytes / sizeof(float) + 1);
    const auto copy = element == 4 ? CopyColumns<uint32_t> : CopyColumns<uint16_t>;
    copy(tensor.file->data() + tensor.begin, all_rows, first, n, n_cols,
         reinterpret_cast<std::byte*>(copy_.data()));
    // Every row is spread over the whole tensor, which is needed until the last one is out.
    last_file_ = first + n == all_rows ? tensor.file : nullptr;
    last_begin_ = tensor.begin;
    last_end_ = tensor.end;
    return {copy_.data(), tensor.dtype};
  }

  void ReleaseLast() {
    if (last_file_ != nullptr) last_file_->DontNeed(last_begin_, last_end_);
  }

  std::vector<Placed> tensors_;
  std::shared_ptr<SafetensorsFile> last_file_;
  uint64_t last_begin_ = 0, last_end_ = 0;
  std::vector<float> copy_;  // of rows that the file has in another place or alignment
};

std::vector<int64_t> WantedShape(const TensorRequest& request) {
  if (request.is_vector) return {request.cols};
  if (request.transposed) return {request.cols, request.rows};
  return {request.rows, request.cols};
}

// Records what is wrong with `found`, or where the tensor is.
void Check(const TensorRequest& request, const CheckpointFiles::Found& found,
           TensorProblems* problems, std::set<std::string>* broken_files, Placed* placed) {
  if (found.name.empty()) {
    problems->Add(request.name, "missing");
    return;
  }
  if (!found.file_error.ok()) {
    broken_files->insert(std::string(found.file_error.message()));
    return;
  }
  if (found.entry == nullptr) {
    problems->Add(found.name, "in the index, but not in the file that it names");
    return;
  }
  const std::vector<int64_t> wanted = WantedShape(request);
  if (found.entry->shape != wanted) {
    problems->Add(found.name,
                  fmt::format("has shape [{}], config.json makes it [{}]",
                              fmt::join(found.entry->shape, ", "), fmt::join(wanted, ", ")));
  }
  const std::optional<DType> dtype = SupportedDType(found.entry->dtype);
  if (!dtype) {
    problems->Add(found.name,
                  fmt::format("has dtype {}, supported are F32, BF16 and F16", found.entry->dtype));
    return;
  }
  *placed = {found.file,
             found.entry->begin,
             found.entry->end,
             *dtype,
             static_cast<uint64_t>(request.cols) * DTypeBytes(*dtype),
             request.transposed};
}

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenCheckpoint(
    const std::string& model_dir, std::span<const TensorRequest> requests) {
  SC_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(model_dir));
  TensorProblems problems;
  std::set<std::string> broken_files;
  std::vector<Placed> placed(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    Check(requests[i], files.Find(requests[i].name), &problems, &broken_files, &placed[i]);
  }
  std::vector<std::string> parts(broken_files.begin(), broken_files.end());
  if (!problems.empty()) parts.push_back(problems.Describe(kMaxProblemLines));
  // Served without their adapter the weights would be another model, silently.
  if (const std::vector<std::string> lora = files.LoraNames(); !lora.empty()) {
    parts.push_back(
        fmt::format("{} tensors of an unmerged LoRA adapter ({}, ...); merge it (peft: "
                    "merge_and_unload, then save_pretrained) and serve the result",
                    lora.size(), lora.front()));
  }
  if (!parts.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: the weights do not fit config.json: {}",
                                                  files.source(), fmt::join(parts, "; ")));
  }
  return std::make_unique<CheckpointSource>(std::move(placed));
}

}  // namespace stagecoach::worker
