// What a journal holds, wherever it is kept.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "stagecoach/v1/journal.pb.h"

namespace stagecoach::router {

struct JournalStream {
  uint64_t number = 0;     // in order of their beginnings; never used again
  uint64_t first_row = 0;  // its events are in rows from this one on
  v1::StreamRecord record;
  std::vector<v1::SequenceEvent> events;
};

struct JournalContent {
  std::optional<v1::RouterRecord> router;  // absent: the journal is new
  uint64_t n_restores = 0;                 // see JournalStore::SetRestores
  uint64_t last_unix_s = 0;                // when the last events were written; 0: none were
  uint64_t next_row = 1, next_number = 1;
  std::vector<JournalStream> streams;  // by number
};

// Puts a content together from what a store has written. Errors of all functions: DATA_LOSS: the
// bytes are no such message.
class JournalContentBuilder {
 public:
  absl::Status SetRouter(std::string_view record, uint64_t n_restores);
  // All streams, in the order of their numbers; then all rows, in the order of theirs.
  absl::Status AddStream(uint64_t number, uint64_t first_row, std::string_view record);
  absl::Status AddRow(uint64_t row, uint64_t unix_s, std::string_view events);

  JournalContent Take() { return std::move(content_); }

 private:
  JournalContent content_;
  std::unordered_map<uint64_t, size_t> index_;  // in content_.streams, by number
};

}  // namespace stagecoach::router
