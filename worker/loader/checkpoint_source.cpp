#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "common/status.h"
#include "worker/loader/find_requests.h"
#include "worker/loader/lora_adapter.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(std::vector<PlacedTensor> tensors) : tensors_(std::move(tensors)) {}

  DType dtype(size_t request) const override { return tensors_[request].dtype(); }

  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    return reader_.Read(tensors_[request], first_row, n_rows);
  }

  std::optional<Encoding> encoding(size_t request) const override {
    return tensors_[request].encoding();
  }

  const void* StoredRows(size_t request, int64_t first_row, int64_t n_rows) override {
    return reader_.ReadStored(tensors_[request], first_row, n_rows);
  }

  std::span<const int32_t> InputOrder(size_t request) const override {
    const PlacedTensor& tensor = tensors_[request];
    return tensor.quantized ? tensor.quantized->order() : std::span<const int32_t>();
  }

 private:
  std::vector<PlacedTensor> tensors_;
  RowReader reader_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenCheckpoint(
    const CheckpointOptions& options, std::span<const TensorRequest> requests) {
  SC_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(options.model_path));
  FoundRequests found = FindRequests(files, requests);
  std::vector<std::string> parts(found.broken_files.begin(), found.broken_files.end());
  if (!found.problems.empty()) parts.push_back(found.problems.Describe());
  std::optional<LoraAdapter> adapter;
  if (!options.adapter_dir.empty()) {
    auto opened = LoraAdapter::Open(options.adapter_dir, files);
    if (opened.ok()) {
      adapter = *std::move(opened);
      for (std::string& line : adapter->Problems(requests, /*is_whole_model=*/false)) {
        parts.push_back(std::move(line));
      }
    } else {
      parts.emplace_back(opened.status().message());
    }
  } else if (!files.lora_names().empty()) {
    // Without the adapter these weights would silently be another model.
    parts.push_back(LoraProblem(files.lora_names()));
  }
  if (!parts.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: the weights do not fit config.json: {}",
                                                  files.source(), fmt::join(parts, "; ")));
  }
  std::unique_ptr<WeightSource> source =
      std::make_unique<CheckpointSource>(std::move(found.placed));
  if (adapter) source = MergeAdapter(std::move(source), *std::move(adapter), requests);
  source = ReorderHeads(std::move(source), requests);
  if (!options.quantize_to) return source;
  return QuantizeLinears(std::move(source), *options.quantize_to, requests);
}

}  // namespace stagecoach::worker
