// What an operator does to a store: looks at its values, and removes some. The serving path
// (kv_store.h) needs none of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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

struct StoredKv {
  KvKey key;
  uint64_t bytes = 0;                       // that it takes: of Redis's memory, or of its file
  std::optional<std::chrono::seconds> age;  // see KvStoreAdmin::age; absent: the store cannot say
};

// Whatever is in the same place and is no value of ours is neither shown nor removed. Servers may
// use the store meanwhile. One thread at a time. Errors are those of KvStore.
class KvStoreAdmin {
 public:
  enum class Age : uint8_t { kSinceWritten, kSinceUsed };

  virtual ~KvStoreAdmin() = default;

  // For people: the place without user and password.
  virtual std::string name() const = 0;
  virtual Age age() const = 0;
  // Calls `visit` with some values at a time, never none, and with each value once. A value that is
  // put meanwhile may be missed. `visit` may delete values; an error of it ends the scan.
  virtual absl::Status Scan(
      const std::function<absl::Status(std::span<const StoredKv>)>& visit) = 0;
  // The bytes of each value, in the same order; nullopt: it is gone. Whoever calls bounds what this
  // takes, by StoredKv::bytes.
  virtual absl::StatusOr<std::vector<std::optional<std::string>>> Read(
      std::span<const StoredKv> values) = 0;
  // Returns how many of them were still there.
  virtual absl::StatusOr<uint64_t> Delete(std::span<const StoredKv> values) = 0;
};

// Opens what OpenKvStore opens, but at once: UNAVAILABLE if it cannot be reached, NOT_FOUND if the
// folder does not exist. INVALID_ARGUMENT for another URL; the message has no password.
absl::StatusOr<std::unique_ptr<KvStoreAdmin>> OpenKvStoreAdmin(std::string_view url);

}  // namespace stagecoach::worker
