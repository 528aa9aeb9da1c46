#include "cli/kv/kv_verify.h"

#include <optional>
#include <span>

#include "common/status.h"
#include "worker/kv_store/kv_entry.h"

namespace stagecoach::cli::kv {
namespace {

using worker::StoredKv;

constexpr uint64_t kBytesAtOnce = 8 << 20;
constexpr uint64_t kLongestValue = 512 << 20;  // no layer of a block has as much

// OK: good. DATA_LOSS: damaged. FAILED_PRECONDITION: foreign.
absl::Status Check(const StoredKv& value, const std::string& bytes) {
  SC_ASSIGN_OR_RETURN(const worker::KvKey key, worker::KeyOfKvEntry(bytes));
  return key == value.key ? absl::OkStatus() : absl::DataLossError("the entry of another key");
}

// The first values, as many as are read at once: at least one.
std::span<const StoredKv> FirstPart(std::span<const StoredKv> values) {
  uint64_t n_bytes = 0;
  size_t n = 0;
  while (n < values.size() && (n == 0 || n_bytes + values[n].bytes <= kBytesAtOnce)) {
    n_bytes += values[n].bytes;
    ++n;
  }
  return values.first(n);
}

class Verifier {
 public:
  Verifier(worker::KvStoreAdmin& store, bool delete_damaged)
      : store_(store), delete_damaged_(delete_damaged) {}

  const Verified& verified() const { return verified_; }

  absl::Status CheckPart(std::span<const StoredKv> values) {
    std::vector<StoredKv> damaged;
    // Only a single value can be as long.
    if (values[0].bytes > kLongestValue) {
      NoteDamage(values[0], "too long", damaged);
    } else {
      SC_ASSIGN_OR_RETURN(const auto read, store_.Read(values));
      for (size_t i = 0; i < values.size(); ++i) {
        const std::optional<std::string>& bytes = read[i];
        if (bytes) Note(values[i], Check(values[i], *bytes), damaged);
      }
    }
    if (!delete_damaged_ || damaged.empty()) return absl::OkStatus();
    SC_ASSIGN_OR_RETURN(const uint64_t n_deleted, store_.Delete(damaged));
    verified_.n_deleted += n_deleted;
    return absl::OkStatus();
  }

 private:
  void Note(const StoredKv& value, const absl::Status& status, std::vector<StoredKv>& damaged) {
    if (status.ok()) {
      verified_.n_good += 1;
    } else if (absl::IsFailedPrecondition(status)) {
      verified_.n_foreign += 1;
    } else {
      NoteDamage(value, std::string(status.message()), damaged);
    }
  }
  void NoteDamage(const StoredKv& value, const std::string& what, std::vector<StoredKv>& damaged) {
    verified_.n_damaged += 1;
    if (verified_.examples.size() < kMostExamples) verified_.examples.push_back({value.key, what});
    damaged.push_back(value);
  }

  worker::KvStoreAdmin& store_;
  const bool delete_damaged_;
  Verified verified_;
};

}  // namespace

absl::StatusOr<Verified> Verify(worker::KvStoreAdmin& store, bool delete_damaged,
                                const std::function<void(uint64_t)>& on_progress) {
  Verifier verifier(store, delete_damaged);
  SC_RETURN_IF_ERROR(store.Scan([&](std::span<const StoredKv> values) -> absl::Status {
    while (!values.empty()) {
      const std::span<const StoredKv> part = FirstPart(values);
      SC_RETURN_IF_ERROR(verifier.CheckPart(part));
      values = values.subspan(part.size());
      on_progress(verifier.verified().n_read());
    }
    return absl::OkStatus();
  }));
  return verifier.verified();
}

}  // namespace stagecoach::cli::kv
