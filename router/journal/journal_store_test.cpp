// What both kinds of stores do.
#include "router/journal/journal_store.h"

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "router/journal/journal.h"
#include "router/journal/journal_place.h"
#include "router/journal/testing/journal_places.h"

namespace stagecoach::router {
namespace {

using enum JournalTestPlace::Kind;

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
  const JournalTestPlace test(GENERATE(kFolder, kRedis));
  const auto place = MakeJournalPlace({.place = test.name()});
  REQUIRE(place.ok());
  {
    auto store = (*place)->Open();
    REQUIRE(store.ok());
    REQUIRE((*store)->Begin().ok());
    REQUIRE((*store)->AddStream(3, 1, Record("three").SerializeAsString()).ok());
    REQUIRE((*store)->AddStream(4, 2, Record("four").SerializeAsString()).ok());
    REQUIRE((*store)->AddStream(5, 2, Record("five").SerializeAsString()).ok());
    REQUIRE((*store)->AddEvents(1, 100, Events({{3, 30}})).ok());
    REQUIRE((*store)->AddEvents(2, 101, Events({{4, 40}, {3, 31}, {5, 50}})).ok());
    REQUIRE((*store)->RemoveStream(5).ok());
    REQUIRE((*store)->Commit().ok());
    // An open transaction at the end is as if it had not begun.
    REQUIRE((*store)->Begin().ok());
    REQUIRE((*store)->AddEvents(3, 102, Events({{3, 32}})).ok());
  }
  auto store = (*place)->Open();
  REQUIRE(store.ok());
  auto content = (*store)->Read();
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

TEST_CASE("rows that are removed leave room for new ones") {
  const JournalTestPlace test(GENERATE(kFolder, kRedis));
  const auto place = MakeJournalPlace({.place = test.name()});
  REQUIRE(place.ok());
  auto store = (*place)->Open();
  REQUIRE(store.ok());
  const std::string events(10'000, 'x');
  REQUIRE((*store)->Begin().ok());
  for (uint64_t row = 1; row <= 100; ++row) {
    REQUIRE((*store)->AddEvents(row, 0, events).ok());
  }
  CHECK(*(*store)->UsedBytes() > 1'000'000);
  REQUIRE((*store)->RemoveRowsBefore(100).ok());
  CHECK(*(*store)->UsedBytes() < 100'000);
  REQUIRE((*store)->Commit().ok());
}

}  // namespace
}  // namespace stagecoach::router
