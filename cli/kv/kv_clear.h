// Counts or deletes the values of a store that are old.
#pragma once

#include <chrono>
#include <optional>

#include "absl/status/statusor.h"
#include "cli/kv/kv_groups.h"
#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::cli::kv {

// Values of at least this age; all if it is absent. FAILED_PRECONDITION: an age is asked for, and
// the store does not know it.
absl::StatusOr<Total> CountOld(worker::KvStoreAdmin& store,
                               std::optional<std::chrono::seconds> age);
// Returns what it has deleted.
absl::StatusOr<Total> DeleteOld(worker::KvStoreAdmin& store,
                                std::optional<std::chrono::seconds> age);

}  // namespace stagecoach::cli::kv
