#include "worker/loader/check_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "common/status.h"
#include "worker/loader/checkpoint_files.h"
#include "worker/loader/find_requests.h"
#include "worker/loader/lora_adapter.h"
#include "worker/loader/quantized_matrix.h"
#include "worker/loader/unexpected_tensors.h"

namespace stagecoach::worker {
namespace {

// Compares the start of a stored lm_head with the embedding that it is tied to.
std::string TiedHeadNote(CheckpointFiles& files, const ModelSpec& spec) {
  constexpr uint64_t kCompareBytes = 1 << 20;
  const auto head = files.Find(spec.names.lm_head + ".weight");
  const auto embed = files.Find(spec.names.embed + ".weight");
  if (head.entry == nullptr || embed.entry == nullptr || head.entry->dtype != embed.entry->dtype) {
    return "";
  }
  const uint64_t n = std::min(
      {kCompareBytes, head.entry->end - head.entry->begin, embed.entry->end - embed.entry->begin});
  const std::byte* left = head.file->mapped->bytes().data() + head.entry->begin;
  const std::byte* right = embed.file->mapped->bytes().data() + embed.entry->begin;
  if (head.entry->shape == embed.entry->shape && std::memcmp(left, right, n) == 0) return "";
  return fmt::format(
      "{} differs from {}, but config.json ties them (tie_word_embeddings): the embedding is used, "
      "as transformers does",
      head.name, embed.name);
}

}  // namespace

CheckpointVerdict CheckCheckpoint(const CheckpointOptions& options, const ModelSpec& spec,
                                  std::span<const TensorRequest> requests) {
  CheckpointVerdict verdict;
  for (const TensorRequest& request : requests) {
    verdict.n_parameters += static_cast<uint64_t>(request.rows * request.cols);
  }
  auto files = CheckpointFiles::Open(options.model_path);
  if (!files.ok()) {
    verdict.problems.emplace_back(files.status().message());
    return verdict;
  }
  verdict.source = files->source();
  const FoundRequests found = FindRequests(*files, requests);
  verdict.problems.assign(found.broken_files.begin(), found.broken_files.end());
  const auto append = [](const std::vector<std::string>& lines, std::vector<std::string>* to) {
    to->insert(to->end(), lines.begin(), lines.end());
  };
  append(found.problems.Lines(), &verdict.problems);
  const UnexpectedTensors unexpected = JudgeUnexpected(spec, files->Names(), found.names);
  append(unexpected.problems.Lines(), &verdict.problems);
  append(unexpected.notes.Lines(), &verdict.notes);
  if (!options.adapter_dir.empty()) {
    const auto adapter = LoraAdapter::Open(options.adapter_dir, *files);
    if (adapter.ok()) {
      append(adapter->Problems(requests, /*is_whole_model=*/true), &verdict.problems);
    } else {
      verdict.problems.emplace_back(adapter.status().message());
    }
  } else if (!files->lora_names().empty()) {
    verdict.problems.push_back(LoraProblem(files->lora_names()));
  }
  if (spec.tied_embedding && !spec.pooling && !spec.names.lm_head.empty()) {
    if (std::string note = TiedHeadNote(*files, spec); !note.empty()) {
      verdict.notes.push_back(std::move(note));
    }
  }
  return verdict;
}

absl::Status CheckNames(const CheckpointOptions& options, const ModelSpec& spec,
                        std::span<const TensorRequest> requests) {
  SC_ASSIGN_OR_RETURN(CheckpointFiles files, CheckpointFiles::Open(options.model_path));
  std::set<std::string> used;
  for (const TensorRequest& request : requests) {
    used.insert(files.NameOf(request.name));
    if (!request.fused_name.empty()) used.insert(files.NameOf(request.fused_name));
    used.merge(NamesOfMatrix(files, request));
  }
  const UnexpectedTensors unexpected = JudgeUnexpected(spec, files.Names(), used);
  if (unexpected.problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: the weights do not fit config.json: {}",
                                                files.source(), unexpected.problems.Describe()));
}

}  // namespace stagecoach::worker
