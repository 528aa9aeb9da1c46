#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/status.h"
#include "worker/loader/find_requests.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kMaxProblemLines = 20;

class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(std::vector<PlacedTensor> tensors) : tensors_(std::move(tensors)) {}

  DType dtype(size_t request) const override { return tensors_[request].dtype(); }

  RowsView Rows(size_t request, int64_t first_row, int64_t n_rows) override {
    return reader_.Read(tensors_[request], first_row, n_rows);
  }

 private:
  std::vector<PlacedTensor> tensors_;
  RowReader reader_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WeightSource>> OpenCheckpoint(
    const std::string& model_path, std::span<const TensorRequest> requests) {
  SC_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(model_path));
  FoundRequests found = FindRequests(files, requests);
  std::vector<std::string> parts(found.broken_files.begin(), found.broken_files.end());
  if (!found.problems.empty()) parts.push_back(found.problems.Describe(kMaxProblemLines));
  // Served without their adapter the weights would be another model, silently.
  if (!files.lora_names().empty()) parts.push_back(LoraProblem(files.lora_names()));
  if (!parts.empty()) {
    return absl::InvalidArgumentError(fmt::format("{}: the weights do not fit config.json: {}",
                                                  files.source(), fmt::join(parts, "; ")));
  }
  return std::make_unique<CheckpointSource>(std::move(found.placed));
}

}  // namespace stagecoach::worker
