// The place that --journal names.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "router/journal/journal_store.h"

namespace stagecoach::router {

struct JournalOptions;

// INVALID_ARGUMENT for a URL that is none of a journal; the message has no password.
absl::StatusOr<std::unique_ptr<JournalPlace>> MakeJournalPlace(const JournalOptions& options);

}  // namespace stagecoach::router
