// The journal in a Redis, for routers that move between machines.
//
// A journal NAME is in the keys stagecoach:journal:{NAME}:lease, a string: who may write; :router,
// a hash with `format`, `record` and `restores`; :streams, a hash from a stream's number to
// "FIRST_ROW RECORD"; and :rows, a list of "ROW UNIX_S EVENTS". All expire: the lease when its
// router has not renewed it, the others when a successor would drop the streams anyway.
//
// Only the lease's owner writes: a script checks the owner in the same step in which it writes.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/redis/redis_connection.h"
#include "router/journal/journal_store.h"

namespace stagecoach::router {

struct RedisJournalOptions {
  RedisUrl url;
  std::string name;
  // From NewLeaseOwner: this router, as opposed to all others. Leases that it has lost the
  // connection for are still its own.
  std::string owner;
  // How long a lease lasts that is not renewed. A router whose predecessor's end it cannot know
  // waits for that long.
  std::chrono::milliseconds lease{10'000};
  // Longest time of a transaction; streams wait for it.
  std::chrono::milliseconds deadline{1'000};
  // What is in the journal stays for so long after the lease was renewed.
  std::chrono::milliseconds keep{70'000};
};

class RedisJournal final : public JournalStore {
 public:
  enum class What : uint8_t { kExisting, kNew };  // kNew removes what is there

  // FAILED_PRECONDITION: another router holds the lease until the end of `patience`.
  static absl::StatusOr<std::unique_ptr<RedisJournal>> Open(const RedisJournalOptions& options,
                                                            What what,
                                                            std::chrono::milliseconds patience);
  ~RedisJournal() override;  // gives the lease up

  absl::StatusOr<JournalContent> Read() override;
  absl::Status SetRouter(const v1::RouterRecord& router) override;
  absl::Status SetRestores(uint64_t n_restores) override;
  absl::Status Begin() override;
  absl::Status Commit() override;
  absl::Status AddStream(uint64_t number, uint64_t first_row, std::string_view record) override;
  absl::Status AddEvents(uint64_t row, uint64_t unix_s, std::string_view events) override;
  absl::Status RemoveStream(uint64_t number) override;
  absl::Status RemoveRowsBefore(uint64_t row) override;
  absl::StatusOr<uint64_t> UsedBytes() override { return n_bytes_; }
  std::chrono::milliseconds keep_lease_every() const override { return options_.lease / 3; }
  absl::Status KeepLease() override;

  // Removes everything but the lease. Also after an error.
  absl::Status Clear();

 private:
  using Clock = RedisConnection::Clock;

  RedisJournal(const RedisJournalOptions& options, std::unique_ptr<RedisConnection> redis);
  std::string Key(std::string_view part) const;
  Clock::time_point Deadline() const { return Clock::now() + options_.deadline; }
  // Takes the lease if nobody has it, or `ended` does. Returns who else has it; empty: taken.
  absl::StatusOr<std::string> TryTakeLease(What what, std::string_view ended);
  absl::Status TakeLease(What what, std::chrono::milliseconds patience);
  // Runs a script of a journal, whose keys are all of its keys. OK: it has answered 1.
  absl::StatusOr<RedisReply> RunScript(std::string_view script,
                                       const std::vector<std::string>& args);
  // Adds a command to the transaction; runs it at once if there is none.
  absl::Status Write(std::vector<std::string> command);
  absl::Status ReadStreams(JournalContentBuilder& builder);
  absl::Status ReadRows(JournalContentBuilder& builder);
  void CountRow(uint64_t row, size_t n_bytes);
  void CountStream(uint64_t number, size_t n_bytes);

  const RedisJournalOptions options_;
  // Another one each time: what an earlier connection has sent and Redis has not read yet must not
  // be written after this.
  const std::string owner_;
  const std::vector<std::string> keys_;  // lease, router, streams, rows
  std::unique_ptr<RedisConnection> redis_;
  bool is_in_transaction_ = false;
  std::vector<std::string> writes_;  // of the transaction: for each command, its length and words
  // What is stored, and its size.
  std::map<uint64_t, size_t> streams_;            // by number
  std::deque<std::pair<uint64_t, size_t>> rows_;  // by row
  uint64_t n_bytes_ = 0;
};

class RedisJournalPlace final : public JournalPlace {
 public:
  explicit RedisJournalPlace(RedisJournalOptions options) : options_(std::move(options)) {}

  std::string name() const override;
  absl::StatusOr<std::unique_ptr<JournalStore>> Open() override;
  absl::StatusOr<std::unique_ptr<JournalStore>> OpenNew() override;
  // Removes nothing if the journal is null: OpenNew does that.
  void Discard(std::unique_ptr<JournalStore> store) override;

 private:
  const RedisJournalOptions options_;
};

}  // namespace stagecoach::router
