// Where a journal is kept: the seam between the journal and a file, or a Redis.
//
// Events are appended in rows that many streams share, because a row per stream and step would cost
// too much. So only the oldest rows can be removed: those from before the first event of the oldest
// stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "router/journal/journal_content.h"

namespace stagecoach::router {

// A journal that is open, for this process alone. One thread at a time. Errors of all functions:
// FAILED_PRECONDITION: another router has it. DATA_LOSS: it is damaged, or another version wrote
// it. PERMISSION_DENIED: it cannot be used. RESOURCE_EXHAUSTED or UNAVAILABLE: everything else, for
// example a full disk. After an error it may be in the middle of a transaction and must be closed.
class JournalStore {
 public:
  virtual ~JournalStore() = default;  // closes it, so that another router can open it

  virtual absl::StatusOr<JournalContent> Read() = 0;
  virtual absl::Status SetRouter(const v1::RouterRecord& router) = 0;
  // Counts the routers that took the streams over and have not written an event since.
  virtual absl::Status SetRestores(uint64_t n_restores) = 0;

  // What is written between these two is kept as a whole or not at all. Committed means: it
  // outlives this process.
  virtual absl::Status Begin() = 0;
  virtual absl::Status Commit() = 0;
  virtual absl::Status AddStream(uint64_t number, uint64_t first_row, std::string_view record) = 0;
  // Rows come in order and without gaps.
  virtual absl::Status AddEvents(uint64_t row, uint64_t unix_s, std::string_view events) = 0;
  virtual absl::Status RemoveStream(uint64_t number) = 0;
  virtual absl::Status RemoveRowsBefore(uint64_t row) = 0;
  // Bytes that hold something.
  virtual absl::StatusOr<uint64_t> UsedBytes() = 0;

  // Without a commit for so long, call KeepLease. 0: never.
  virtual std::chrono::milliseconds keep_lease_every() const {
    return std::chrono::milliseconds(0);
  }
  virtual absl::Status KeepLease() { return absl::OkStatus(); }
};

// The place that successive routers share. One thread at a time. Errors are those of JournalStore.
class JournalPlace {
 public:
  virtual ~JournalPlace() = default;

  // As the flag names it, without passwords.
  virtual std::string name() const = 0;
  // Opens what is there, or a new journal. May wait for a lease to end.
  virtual absl::StatusOr<std::unique_ptr<JournalStore>> Open() = 0;
  // Opens a new journal after Discard. Never waits for another router.
  virtual absl::StatusOr<std::unique_ptr<JournalStore>> OpenNew() = 0;
  // Closes the journal, which may be null, and removes what is in the place, as far as that works.
  virtual void Discard(std::unique_ptr<JournalStore> store) = 0;
};

}  // namespace stagecoach::router
