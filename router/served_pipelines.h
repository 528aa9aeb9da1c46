// All pipelines that the router serves: one, or several replicas of it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/append_only.h"
#include "common/recoveries.h"
#include "common/stage_loads.h"
#include "router/replicas/replica_set.h"
#include "router/served_pipeline.h"

namespace stagecoach::router {

// By replica. Functions with this argument keep a reference to it. They leave out the pipelines
// that were left, and take in those that are added.
using Pipelines = AppendOnly<ServedPipeline, ReplicaSet::kMostReplicas>;

// The options of each pipeline: `common`, and its part of the workers. `addresses` has the workers
// of all pipelines, one pipeline after the other. INVALID_ARGUMENT if they do not divide evenly.
absl::StatusOr<std::vector<PipelineOptions>> SplitStages(const std::vector<std::string>& addresses,
                                                         size_t n_replicas,
                                                         const PipelineOptions& common);

// Sets up all pipelines at the same time, for sequences of the same length. The first error counts.
absl::StatusOr<std::vector<Pipeline>> SetUpAll(const ModelSpec& spec,
                                               const std::vector<PipelineOptions>& options);

// The stages of two pipelines: FAILED_PRECONDITION if their workers compute in different ways, or
// have read different weights. A sequence must get the same tokens wherever it goes.
absl::Status CheckAlike(const std::vector<PipelineStage>& first,
                        const std::vector<PipelineStage>& other);

// Why no pipeline serves now, in words; empty: at least one does.
std::string TroubleOfAll(const Pipelines& pipelines);

// Prepares grammars on every pipeline that serves, because a sequence may go to any of them, now or
// after a loss. Waits if none serves.
PrepareGrammar GrammarPreparer(const Pipelines& pipelines);

// These report on all stages, pipeline by pipeline.
std::vector<v1::StageStatus> StageStatuses(const Pipelines& pipelines);
StageLoads LoadsOfAll(const Pipelines& pipelines);
Recoveries RecoveriesOfAll(const Pipelines& pipelines);

}  // namespace stagecoach::router
