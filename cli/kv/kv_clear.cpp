#include "cli/kv/kv_clear.h"

#include <functional>
#include <span>
#include <vector>

#include "common/status.h"

namespace stagecoach::cli::kv {
namespace {

using worker::StoredKv;

absl::Status ForEachOld(worker::KvStoreAdmin& store, std::optional<std::chrono::seconds> age,
                        const std::function<absl::Status(const std::vector<StoredKv>&)>& visit) {
  return store.Scan([&](std::span<const StoredKv> values) -> absl::Status {
    std::vector<StoredKv> old;
    for (const StoredKv& value : values) {
      if (age && !value.age) {
        return absl::FailedPreconditionError(
            store.name() +
            " does not know when values were last used: its maxmemory-policy is one of LFU");
      }
      if (!age || value.age >= age) old.push_back(value);
    }
    return old.empty() ? absl::OkStatus() : visit(old);
  });
}

}  // namespace

absl::StatusOr<Total> CountOld(worker::KvStoreAdmin& store,
                               std::optional<std::chrono::seconds> age) {
  Total total;
  SC_RETURN_IF_ERROR(ForEachOld(store, age, [&](const std::vector<StoredKv>& old) {
    for (const StoredKv& value : old) total.Add(value);
    return absl::OkStatus();
  }));
  return total;
}

absl::StatusOr<Total> DeleteOld(worker::KvStoreAdmin& store,
                                std::optional<std::chrono::seconds> age) {
  Total total;
  SC_RETURN_IF_ERROR(ForEachOld(store, age, [&](const std::vector<StoredKv>& old) -> absl::Status {
    SC_ASSIGN_OR_RETURN(const uint64_t n_deleted, store.Delete(old));
    total.n_values += n_deleted;
    for (const StoredKv& value : old) total.bytes += value.bytes;
    return absl::OkStatus();
  }));
  return total;
}

}  // namespace stagecoach::cli::kv
