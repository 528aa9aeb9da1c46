// Sends grammars to the last stage before the sequences that use them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc/internal_access.h"
#include "stagecoach/v1/stage.pb.h"

namespace stagecoach::router {

// Blocks until the stage, or its replacement after a loss, has compiled the grammar. Thread-safe.
// INVALID_ARGUMENT if the stage rejects the grammar; UNAVAILABLE, with the stage's address, for
// every other failure.
using PrepareGrammar = std::function<absl::Status(const v1::SlotGrammar&)>;

// The lease to call with. The argument is the epoch of a call that failed, or 0: see
// PipelineKeeper::AwaitLease. An error ends the attempts.
using AwaitLease = std::function<absl::StatusOr<v1::Lease>(uint64_t failed_epoch)>;

// Prepares a grammar on several pipelines at the same time. OK if at least one has it.
PrepareGrammar PrepareOnEach(std::vector<PrepareGrammar> pipelines);

PrepareGrammar MakeGrammarClient(const std::string& last_stage_address, AwaitLease await_lease,
                                 const InternalAccess& access = {});

}  // namespace stagecoach::router
