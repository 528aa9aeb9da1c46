// Sends grammars to the last stage before the sequences that use them.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "common/rpc/internal_access.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Blocks until the stage has compiled the grammar. Thread-safe. INVALID_ARGUMENT if the stage
// rejects the grammar; UNAVAILABLE, with the stage's address, for every other failure.
using PrepareGrammar = std::function<absl::Status(const v1::SlotGrammar&)>;

PrepareGrammar MakeGrammarClient(const std::string& last_stage_address, const v1::Lease& lease,
                                 const InternalAccess& access = {});

}  // namespace stagecoach::router
