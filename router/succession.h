// What a router takes over from the one before it, by way of the journal.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/flags/front_end_flags.h"
#include "router/journal/journal.h"

namespace stagecoach::router {

class Frontend;

// The journal, from which this router has its names from now on. Null: the flags name none. Errors
// are those of Journal::Open.
absl::StatusOr<std::unique_ptr<Journal>> OpenJournal(const FrontEndFlags& flags);

// Goes on with the streams of the journal. Returns when clients can read all that the earlier
// router generated. Call it while the scheduler runs, before clients come.
void ContinueStreams(Frontend& frontend, Journal& journal);

}  // namespace stagecoach::router
