#include "router/served_pipelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "common/status.h"

namespace stagecoach::router {

namespace {

std::vector<ServedPipeline*> Present(const Pipelines& pipelines) {
  std::vector<ServedPipeline*> present;
  for (size_t i = 0; i < pipelines.size(); ++i) {
    if (!pipelines[i].is_left()) present.push_back(&pipelines[i]);
  }
  return present;
}

}  // namespace

absl::Status CheckAlike(const std::vector<PipelineStage>& first,
                        const std::vector<PipelineStage>& other) {
  for (size_t i = 0; i < first.size(); ++i) {
    const PipelineStage &one = first[i], &two = other[i];
    if (two.numerics != one.numerics) {
      return absl::FailedPreconditionError(fmt::format(
          "replicas must compute alike, but {} computes with \"{}\", and {} with \"{}\"",
          two.address, two.numerics, one.address, one.numerics));
    }
    const bool are_known = !one.layers_id.empty() && !two.layers_id.empty();
    if (are_known && one.layers == two.layers && two.layers_id != one.layers_id) {
      return absl::FailedPreconditionError(
          fmt::format("replicas must serve the same model, but {} and {} have read different "
                      "weights: the model's files have changed since",
                      one.address, two.address));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<PipelineOptions>> SplitStages(const std::vector<std::string>& addresses,
                                                         size_t n_replicas,
                                                         const PipelineOptions& common) {
  if (addresses.size() % n_replicas != 0) {
    return absl::InvalidArgumentError(
        fmt::format("--stages names {} workers, which {} replicas cannot share evenly",
                    addresses.size(), n_replicas));
  }
  const size_t n_stages = addresses.size() / n_replicas;
  std::vector<PipelineOptions> replicas(n_replicas, common);
  for (size_t i = 0; i < addresses.size(); ++i) {
    for (size_t r = 0; r < n_replicas; ++r) {
      auto& part = i / n_stages == r ? replicas[r].addresses : replicas[r].other_addresses;
      part.push_back(addresses[i]);
    }
  }
  return replicas;
}

absl::StatusOr<std::vector<Pipeline>> SetUpAll(const ModelSpec& spec,
                                               const std::vector<PipelineOptions>& options) {
  std::vector<std::future<absl::StatusOr<Pipeline>>> setups;
  for (const PipelineOptions& one : options) {
    setups.push_back(
        std::async(std::launch::async, [&spec, &one] { return SetUpPipeline(spec, one); }));
  }
  std::vector<Pipeline> pipelines;
  absl::Status status;
  for (auto& setup : setups) {
    absl::StatusOr<Pipeline> pipeline = setup.get();
    if (status.ok()) status = pipeline.status();
    if (pipeline.ok()) pipelines.push_back(*std::move(pipeline));
  }
  if (!status.ok()) return status;
  for (const Pipeline& pipeline : pipelines) {
    SC_RETURN_IF_ERROR(CheckAlike(pipelines.front().stages, pipeline.stages));
  }
  // A sequence must fit wherever it goes.
  int32_t least = pipelines.front().kv.max_model_len;
  for (const Pipeline& pipeline : pipelines) least = std::min(least, pipeline.kv.max_model_len);
  for (Pipeline& pipeline : pipelines) pipeline.kv.max_model_len = least;
  return pipelines;
}

std::string TroubleOfAll(const Pipelines& pipelines) {
  std::string first;
  for (const ServedPipeline* pipeline : Present(pipelines)) {
    std::string trouble = pipeline->Trouble();
    if (trouble.empty()) return "";
    if (first.empty()) first = std::move(trouble);
  }
  return first;
}

PrepareGrammar GrammarPreparer(const Pipelines& pipelines) {
  return [&pipelines](const v1::SlotGrammar& grammar) {
    const std::vector<ServedPipeline*> present = Present(pipelines);
    if (present.size() == 1) return present.front()->grammars(/*patient=*/true)(grammar);
    std::vector<PrepareGrammar> serving;
    for (const ServedPipeline* one : present) serving.push_back(one->grammars(/*patient=*/false));
    absl::Status status = PrepareOnEach(std::move(serving))(grammar);
    // All are lost: wait for one.
    for (const ServedPipeline* one : present) {
      if (!absl::IsUnavailable(status)) break;
      status = one->grammars(/*patient=*/true)(grammar);
    }
    return status;
  };
}

std::vector<v1::StageStatus> StageStatuses(const Pipelines& pipelines) {
  std::vector<v1::StageStatus> statuses;
  for (const ServedPipeline* pipeline : Present(pipelines)) {
    for (v1::StageStatus& status : pipeline->StageStatuses()) statuses.push_back(std::move(status));
  }
  return statuses;
}

Recoveries RecoveriesOfAll(const Pipelines& pipelines) {
  return [&pipelines] {
    std::vector<Recovery> all;
    for (const ServedPipeline* pipeline : Present(pipelines)) {
      for (Recovery& recovery : pipeline->LatestRecoveries()) all.push_back(std::move(recovery));
    }
    return all;
  };
}

StageLoads LoadsOfAll(const Pipelines& pipelines) {
  return MakeStageLoads([&pipelines] {
    std::vector<std::optional<v1::StatsResponse>> stats;
    for (const ServedPipeline* pipeline : Present(pipelines)) {
      for (auto& stage : pipeline->stage_stats()()) stats.push_back(std::move(stage));
    }
    return stats;
  });
}

}  // namespace stagecoach::router
