// Grammars to the last stage, ahead of the sequences that keep to them.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/internal_access.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Blocks until the stage has compiled the grammar; thread-safe. UNAVAILABLE names the stage when it
// does not answer.
using PrepareGrammar = std::function<absl::Status(const v1::SlotGrammar&)>;

PrepareGrammar MakeGrammarClient(const std::string& last_stage_address, const v1::Lease& lease,
                                 const InternalAccess& access = {});

}  // namespace stagecoach::router
