// What a router asks for with a load, checked and in the worker's own terms.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/text/grammar_cache.h"
#include "stagecoach/v1/stage.pb.h"
#include "worker/model/stage_model.h"

namespace stagecoach::worker {

// INVALID_ARGUMENT names the number that is out of range.
absl::Status CheckLoad(const v1::LoadRequest& request);

// REQUIRES of both: CheckLoad.
StageModelOptions ModelOptions(const v1::LoadRequest& request, std::shared_ptr<WorkCounter> work);
// Without a table there are no grammars; one that does not suit is an error.
absl::StatusOr<std::shared_ptr<text::GrammarCache>> MakeGrammars(const v1::LoadRequest& request,
                                                                 int32_t vocab_size);

}  // namespace stagecoach::worker
