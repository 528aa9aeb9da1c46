#include "router/journal/journal_content.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/status.h"

namespace stagecoach::router {
namespace {

template <typename Message>
absl::Status Parse(std::string_view bytes, const char* what, Message& message) {
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::OkStatus();
  }
  return absl::DataLossError(fmt::format("a {} of the journal cannot be read", what));
}

}  // namespace

absl::Status JournalContentBuilder::SetRouter(std::string_view record, uint64_t n_restores) {
  content_.n_restores = n_restores;
  return Parse(record, "router record", content_.router.emplace());
}

absl::Status JournalContentBuilder::AddStream(uint64_t number, uint64_t first_row,
                                              std::string_view record) {
  index_.emplace(number, content_.streams.size());
  JournalStream& stream = content_.streams.emplace_back();
  stream.number = number;
  stream.first_row = first_row;
  content_.next_number = number + 1;
  return Parse(record, "stream record", stream.record);
}

absl::Status JournalContentBuilder::AddRow(uint64_t row, uint64_t unix_s,
                                           std::string_view serialized) {
  content_.next_row = row + 1;
  content_.last_unix_s = unix_s;
  v1::SequenceEvents events;
  SC_RETURN_IF_ERROR(Parse(serialized, "row of events", events));
  for (v1::SequenceEvent& event : *events.mutable_events()) {
    // Rows may still hold events of streams that were removed.
    content_.next_number = std::max(content_.next_number, event.stream() + 1);
    const auto found = index_.find(event.stream());
    if (found != index_.end()) content_.streams[found->second].events.push_back(std::move(event));
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::router
