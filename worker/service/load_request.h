// Checks a router's load request and converts it to the worker's own types.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/grammar_cache.h"
#include "stagecoach/v1/stage.pb.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// INVALID_ARGUMENT names the value that is out of range.
absl::Status CheckLoad(const v1::LoadRequest& request);

// `numerics`: of this worker's Ops. FAILED_PRECONDITION if the router expects another one: tokens
// of running sequences could change.
absl::Status CheckNumerics(const v1::LoadRequest& request, const std::string& numerics);

// REQUIRES for both: CheckLoad.
// Whether `request` asks its router's worker for what the worker has loaded for `loaded`, so that
// the load can be skipped. The lease's holder must be the same one, because files may have changed
// between two routers. Only the successor of a killed router has the name of the one before.
bool IsLoaded(const v1::LoadRequest& loaded, const v1::LoadRequest& request);

StageModelOptions ModelOptions(const v1::LoadRequest& request, std::shared_ptr<WorkCounter> work);
// StageModel::Load for a worker with --batch-invariant. INVALID_ARGUMENT if tokens would depend on
// the number of stages.
absl::StatusOr<std::unique_ptr<StageModel>> LoadBatchInvariant(const StageModelOptions& options,
                                                               kernels::Ops* ops,
                                                               const LoadProgressFn& progress);

// Returns null if the request has no token table; grammars are then unavailable. An unsuitable
// table is an error.
absl::StatusOr<std::shared_ptr<text::GrammarCache>> MakeGrammars(const v1::LoadRequest& request,
                                                                 int32_t vocab_size);

}  // namespace stagecoach::worker
