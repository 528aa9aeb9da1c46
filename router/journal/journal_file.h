// The journal on disk: an SQLite file in WAL mode that one process has locked.
//
// Events are appended in rows that many streams share, because a row per stream and step would
// write a page of the file for each. So only the oldest rows can be removed: those from before the
// first event of the oldest stream.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "router/journal/sqlite.h"
#include "stagecoach/v1/journal.pb.h"

namespace stagecoach::router {

// One thread at a time. Errors are those of Sqlite; after one, the file may be in the middle of a
// transaction and must be closed.
class JournalFile {
 public:
  struct Stream {
    uint64_t number = 0;     // in order of their beginnings; never used again
    uint64_t first_row = 0;  // its events are in rows from this one on
    v1::StreamRecord record;
    std::vector<v1::SequenceEvent> events;
  };
  struct Content {
    std::optional<v1::RouterRecord> router;  // absent: the file is new
    uint64_t n_restores = 0;                 // see SetRestores
    uint64_t last_unix_s = 0;                // when the last events were written; 0: none were
    uint64_t next_row = 1, next_number = 1;
    std::vector<Stream> streams;  // by number
  };

  static std::string PathIn(const std::string& folder);
  // Removes the file of a closed journal, and SQLite's files beside it.
  static void Remove(const std::string& folder);
  // Makes the folder and the file if they are missing. DATA_LOSS also if another version wrote it.
  static absl::StatusOr<std::unique_ptr<JournalFile>> Open(const std::string& folder);

  absl::StatusOr<Content> Read();
  absl::Status SetRouter(const v1::RouterRecord& router);
  // Counts the routers that took the streams over and have not written an event since.
  absl::Status SetRestores(uint64_t n_restores);

  // What is written between these two comes to disk as a whole or not at all. Committed means: in
  // the kernel's memory, so it outlives the process, but maybe not the machine.
  absl::Status Begin();
  absl::Status Commit();
  absl::Status AddStream(uint64_t number, uint64_t first_row, std::string_view record);
  absl::Status AddEvents(uint64_t row, uint64_t unix_s, std::string_view events);
  absl::Status RemoveStream(uint64_t number);
  absl::Status RemoveRowsBefore(uint64_t row);
  // Bytes of the file that hold something.
  absl::StatusOr<uint64_t> UsedBytes();

 private:
  explicit JournalFile(Sqlite connection) : connection_(std::move(connection)) {}
  absl::Status Prepare();

  Sqlite connection_;  // outlives its statements
  SqlStatement begin_, commit_, add_stream_, add_events_, remove_stream_, remove_rows_, n_pages_,
      n_free_pages_;
};

}  // namespace stagecoach::router
