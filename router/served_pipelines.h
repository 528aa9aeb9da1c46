// All pipelines that the router serves: one, or several replicas of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/stage_loads.h"
#include "router/served_pipeline.h"

namespace stagecoach::router {

// By replica. Functions with this argument keep a reference to it.
using Pipelines = std::vector<std::unique_ptr<ServedPipeline>>;

// The options of each pipeline: `common`, and its part of the workers. `addresses` has the workers
// of all pipelines, one pipeline after the other. INVALID_ARGUMENT if they do not divide evenly.
absl::StatusOr<std::vector<PipelineOptions>> SplitStages(const std::vector<std::string>& addresses,
                                                         size_t n_replicas,
                                                         const PipelineOptions& common);

// Sets up all pipelines at the same time, for sequences of the same length. The first error counts.
absl::StatusOr<std::vector<Pipeline>> SetUpAll(const ModelSpec& spec,
                                               const std::vector<PipelineOptions>& options);

// Why no pipeline serves now, in words; empty: at least one does.
std::string TroubleOfAll(const Pipelines& pipelines);

// Prepares grammars on every pipeline that serves, because a sequence may go to any of them, now or
// after a loss. Waits if none serves.
PrepareGrammar GrammarPreparer(const Pipelines& pipelines);

// These report on all stages, pipeline by pipeline. An entry of StalledStages is empty if the stage
// is not stalled.
std::vector<v1::StageStatus> StageStatuses(const Pipelines& pipelines);
std::vector<std::string> StalledStages(const Pipelines& pipelines);
StageLoads LoadsOfAll(const Pipelines& pipelines);

}  // namespace stagecoach::router
