// Where KV blocks are kept outside a process, so that other servers and later processes can use
// them.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/kv_store/kv_key.h"

namespace stagecoach::worker {

// A value as a store keeps it: an entry of kv_entry.h.
struct KvValue {
  KvKey key;
  std::string_view bytes;  // not empty
  uint64_t owner = 0;      // whose quota it takes, if the store has quotas
};

// A cache: what was put may be gone at any time, and what it returns may be of any bytes. Several
// stores, also of other processes, may use the same place at once. One thread at a time.
class KvStore {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~KvStore() = default;

  // For people: the place without user and password.
  virtual std::string name() const = 0;
  // Returns a value for each key, in the same order; nullopt: there is none, or it is longer than a
  // value may be. PERMISSION_DENIED: user or password are wrong. Any other error, mostly
  // UNAVAILABLE: the place cannot be used now, or not by the deadline.
  virtual absl::StatusOr<std::vector<std::optional<std::string>>> Get(
      std::span<const KvKey> keys, Clock::time_point deadline) = 0;
  // Whether there may be a value for each key: Get may still return none. Errors are Get's.
  virtual absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys,
                                                Clock::time_point deadline) = 0;
  // Replaces the values that these keys have. After an error, some of the new values may be stored.
  // Errors are Get's and, if only writing fails, RESOURCE_EXHAUSTED: the place is full; or
  // PERMISSION_DENIED: this user may not write.
  virtual absl::Status Put(std::span<const KvValue> values, Clock::time_point deadline) = 0;
};

// What to say about another URL.
inline constexpr char kStoreUrls[] =
    "a store for KV blocks is redis://..., rediss://... or dir:PATH";

// Opens the store at redis://... or rediss://... (redis_kv_store.h), or dir:PATH (dir_kv_store.h).
// It connects when it is first used. `max_value_bytes`, above 0, is the length of the longest value
// that is put or that Get returns: kKvEntryHeaderBytes and the payload of the model's largest
// layer. INVALID_ARGUMENT for another URL; the message names the flag, and no password.
absl::StatusOr<std::unique_ptr<KvStore>> OpenKvStore(std::string_view url, size_t max_value_bytes);

}  // namespace stagecoach::worker
