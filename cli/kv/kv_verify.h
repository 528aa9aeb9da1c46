// Reads every value of a store, and says which ones are of no use.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/kv_store/kv_store_admin.h"

namespace stagecoach::cli::kv {

struct Damage {
  worker::KvKey key;
  std::string what;
};

struct Verified {
  uint64_t n_good = 0;
  uint64_t n_damaged = 0;        // cut, changed, or the entry of another key
  uint64_t n_foreign = 0;        // of another version, which only that version can check
  uint64_t n_deleted = 0;        // damaged ones
  std::vector<Damage> examples;  // the first damaged ones

  uint64_t n_read() const { return n_good + n_damaged + n_foreign; }
};

inline constexpr size_t kMostExamples = 10;

// Calls `on_progress` now and then with the number of values that were read.
absl::StatusOr<Verified> Verify(worker::KvStoreAdmin& store, bool delete_damaged,
                                const std::function<void(uint64_t)>& on_progress);

}  // namespace stagecoach::cli::kv
