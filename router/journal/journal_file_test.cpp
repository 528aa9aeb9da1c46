#include "router/journal/journal_file.h"

#include <sys/stat.h>

#include <fstream>

#include "catch2/catch_test_macros.hpp"
#include "common/temp_dir.h"

namespace stagecoach::router {
namespace {

std::string Events(std::initializer_list<std::pair<uint64_t, int32_t>> tokens) {
  v1::SequenceEvents events;
  for (const auto& [stream, token] : tokens) {
    v1::SequenceEvent& event = *events.add_events();
    event.set_stream(stream);
    event.set_token(token);
  }
  return events.SerializeAsString();
}

v1::StreamRecord Record(const std::string& id) {
  v1::StreamRecord record;
  record.set_request_id(id);
  return record;
}

TEST_CASE("streams come back with their own events, in order") {
  const TempDir dir;
  {
    auto file = JournalFile::Open(dir.path());
    REQUIRE(file.ok());
    REQUIRE((*file)->Begin().ok());
    REQUIRE((*file)->AddStream(3, 1, Record("three").SerializeAsString()).ok());
    REQUIRE((*file)->AddStream(4, 2, Record("four").SerializeAsString()).ok());
    REQUIRE((*file)->AddStream(5, 2, Record("five").SerializeAsString()).ok());
    REQUIRE((*file)->AddEvents(1, 100, Events({{3, 30}})).ok());
    REQUIRE((*file)->AddEvents(2, 101, Events({{4, 40}, {3, 31}, {5, 50}})).ok());
    REQUIRE((*file)->RemoveStream(5).ok());
    REQUIRE((*file)->Commit().ok());
    // An open transaction at the end is as if it had not begun.
    REQUIRE((*file)->Begin().ok());
    REQUIRE((*file)->AddEvents(3, 102, Events({{3, 32}})).ok());
  }
  auto file = JournalFile::Open(dir.path());
  REQUIRE(file.ok());
  auto content = (*file)->Read();
  REQUIRE(content.ok());
  CHECK_FALSE(content->router.has_value());
  CHECK(content->last_unix_s == 101);
  CHECK(content->next_row == 3);
  CHECK(content->next_number == 6);  // rows still hold an event of stream 5
  REQUIRE(content->streams.size() == 2);
  CHECK(content->streams[0].record.request_id() == "three");
  REQUIRE(content->streams[0].events.size() == 2);
  CHECK(content->streams[0].events[1].token() == 31);
  CHECK(content->streams[1].first_row == 2);
  REQUIRE(content->streams[1].events.size() == 1);
}

TEST_CASE("only the owner can read the journal") {
  const TempDir dir;
  const std::string folder = dir.File("new");
  REQUIRE(JournalFile::Open(folder).ok());
  struct stat of_file, of_folder;
  REQUIRE(stat(JournalFile::PathIn(folder).c_str(), &of_file) == 0);
  REQUIRE(stat(folder.c_str(), &of_folder) == 0);
  CHECK((of_file.st_mode & 0777) == 0600);
  CHECK((of_folder.st_mode & 0777) == 0700);
}

TEST_CASE("errors tell a lock, damage and a wrong path apart") {
  const TempDir dir;
  const std::string folder = dir.path();
  auto first = JournalFile::Open(folder);
  REQUIRE(first.ok());
  CHECK(JournalFile::Open(folder).status().code() == absl::StatusCode::kFailedPrecondition);
  first->reset();
  std::ofstream(JournalFile::PathIn(folder)) << std::string(5000, 'x');
  CHECK(JournalFile::Open(folder).status().code() == absl::StatusCode::kDataLoss);
  JournalFile::Remove(folder);
  CHECK(JournalFile::Open(folder).ok());
  CHECK(JournalFile::Open("/dev/null/journal").status().code() ==
        absl::StatusCode::kPermissionDenied);
}

TEST_CASE("rows that are removed leave room for new ones") {
  const TempDir dir;
  auto file = JournalFile::Open(dir.path());
  REQUIRE(file.ok());
  const std::string events(10'000, 'x');
  REQUIRE((*file)->Begin().ok());
  for (uint64_t row = 1; row <= 100; ++row) {
    REQUIRE((*file)->AddEvents(row, 0, events).ok());
  }
  CHECK(*(*file)->UsedBytes() > 1'000'000);
  REQUIRE((*file)->RemoveRowsBefore(100).ok());
  CHECK(*(*file)->UsedBytes() < 100'000);
  REQUIRE((*file)->Commit().ok());
}

}  // namespace
}  // namespace stagecoach::router
