// What is particular about a journal in Redis: its lease, and a Redis in trouble.
#include "router/journal/redis_journal.h"

#include <csignal>
#include <future>

#include "catch2/catch_test_macros.hpp"
#include "common/redis/testing/redis_server.h"
#include "common/unix_time.h"
#include "router/journal/journal.h"

namespace stagecoach::router {
namespace {

constexpr char kElsewhere[] = "elsewhere/1/1/boot,pid:[1]/abc";
constexpr char kLease[] = "stagecoach:journal:{chat}:lease";

// A Redis, and what another client of it sees and does.
struct House {
  absl::StatusOr<RedisReply> Run(const RedisCommand& command) const {
    const auto deadline = RedisConnection::Clock::now() + std::chrono::seconds(60);
    auto redis = RedisConnection::Open(*ParseRedisUrl(server.url()), deadline);
    REQUIRE(redis.ok());
    return (*redis)->Run(command, deadline);
  }
  std::string Get(std::string_view key) const { return std::string(Run({"GET", key})->text()); }

  absl::StatusOr<std::unique_ptr<Journal>> Open(JournalOptions options = {}) const {
    v1::RouterRecord router;
    router.set_lease_holder("me");
    options.place = server.url() + "?name=chat";
    options.retry_after = std::chrono::milliseconds(0);
    return Journal::Open(options, router);
  }

  RedisServer server;
};

int32_t AppendAndWait(Journal& journal, uint64_t stream, int32_t token) {
  std::promise<int32_t> passed;
  v1::SequenceEvent event;
  event.set_token(token);
  journal.Append(stream, event,
                 [&](const v1::SequenceEvent& event) { passed.set_value(event.token()); });
  return passed.get_future().get();
}

uint64_t Begin(Journal& journal, const std::string& id) {
  v1::StreamRecord record;
  record.set_request_id(id);
  record.set_arrived_unix_us(static_cast<int64_t>(UnixNanoseconds() / 1000));
  const uint64_t number = journal.NewNumber();
  journal.Begin(number, record);
  return number;
}

void AwaitWorks(const Journal& journal) {
  while (journal.Read().failing) {
  }
}

// All that a successor finds.
std::vector<std::string> StreamsLeft(const House& house) {
  auto journal = house.Open();
  REQUIRE(journal.ok());
  std::vector<std::string> left;
  for (const auto& stream : (*journal)->TakeStreams()) {
    left.push_back(stream.record.request_id() + ":" + std::to_string(stream.events.size()));
  }
  return left;
}

TEST_CASE("a router waits for a lease that nobody renews") {
  const House house;
  REQUIRE(house.Run({"SET", kLease, kElsewhere, "PX", "300"}).ok());
  auto journal = house.Open();
  REQUIRE(journal.ok());
  CHECK_FALSE((*journal)->Read().failing);
  CHECK(house.Get(kLease) != kElsewhere);
}

TEST_CASE("a router that renews its lease keeps others out, who learn its name") {
  const House house;
  const auto lease = std::chrono::milliseconds(1'500);
  auto journal = house.Open({.lease = lease});
  REQUIRE(journal.ok());
  const absl::Status status = house.Open({.lease = lease}).status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(status.message()).find("process " + std::to_string(getpid())) !=
        std::string::npos);
  CHECK_FALSE((*journal)->Read().failing);
}

TEST_CASE("at its end a router gives the lease up") {
  const House house;
  auto journal = house.Open();
  REQUIRE(journal.ok());
  CHECK_FALSE(house.Get(kLease).empty());
  (*journal)->Stop();
  CHECK(house.Get(kLease).empty());
}

TEST_CASE("a router that has lost its lease writes nothing more, and serves on") {
  const House house;
  auto journal = house.Open();
  REQUIRE(journal.ok());
  const uint64_t stream = Begin(**journal, "mine");
  AppendAndWait(**journal, stream, 1);
  REQUIRE(house.Run({"SET", kLease, kElsewhere}).ok());
  CHECK(AppendAndWait(**journal, stream, 2) == 2);
  CHECK(AppendAndWait(**journal, Begin(**journal, "later"), 3) == 3);
  CHECK((*journal)->Read().failing);
  CHECK((*journal)->Read().n_failures == 1);  // it does not try again
  (*journal)->Stop();
  CHECK(house.Get(kLease) == kElsewhere);
  REQUIRE(house.Run({"DEL", kLease}).ok());
  CHECK(StreamsLeft(house) == std::vector<std::string>{"mine:1"});
}

TEST_CASE("a lease that has ended is taken again, for a new journal") {
  const House house;
  auto journal = house.Open();
  REQUIRE(journal.ok());
  AppendAndWait(**journal, Begin(**journal, "old"), 1);
  REQUIRE(house.Run({"DEL", kLease}).ok());
  AppendAndWait(**journal, Begin(**journal, "lost"), 1);
  CHECK((*journal)->Read().n_failures == 1);
  AwaitWorks(**journal);
  AppendAndWait(**journal, Begin(**journal, "new"), 1);
  (*journal)->Stop();
  CHECK(StreamsLeft(house) == std::vector<std::string>{"new:1"});
}

TEST_CASE("a Redis that hangs costs what is in the journal, and serving goes on") {
  House house;
  auto journal = house.Open();
  REQUIRE(journal.ok());
  const uint64_t old = Begin(**journal, "old");
  AppendAndWait(**journal, old, 1);
  house.server.Signal(SIGSTOP);
  CHECK(AppendAndWait(**journal, old, 2) == 2);
  CHECK((*journal)->Read().failing);
  CHECK(AppendAndWait(**journal, old, 3) == 3);
  house.server.Signal(SIGCONT);
  AwaitWorks(**journal);
  AppendAndWait(**journal, old, 4);
  AppendAndWait(**journal, Begin(**journal, "new"), 1);
  (*journal)->Stop();
  CHECK(StreamsLeft(house) == std::vector<std::string>{"new:1"});
}

TEST_CASE("a Redis that is down, also at the router's start") {
  House house;
  house.server.Kill();
  auto journal = house.Open();
  REQUIRE(journal.ok());
  CHECK((*journal)->Read().failing);
  CHECK(AppendAndWait(**journal, Begin(**journal, "lost"), 1) == 1);
  house.server.Start();
  AwaitWorks(**journal);
  AppendAndWait(**journal, Begin(**journal, "kept"), 1);
  (*journal)->Stop();
  CHECK(StreamsLeft(house) == std::vector<std::string>{"kept:1"});
}

TEST_CASE("a Redis whose memory is full") {
  const House house;
  auto journal = house.Open();
  REQUIRE(journal.ok());
  const uint64_t old = Begin(**journal, "old");
  AppendAndWait(**journal, old, 1);
  REQUIRE(house.Run({"CONFIG", "SET", "maxmemory", "1"}).ok());
  CHECK(AppendAndWait(**journal, old, 2) == 2);
  CHECK((*journal)->Read().failing);
  CHECK(house.Run({"EXISTS", "stagecoach:journal:{chat}:rows"})->number() == 0);
  REQUIRE(house.Run({"CONFIG", "SET", "maxmemory", "0"}).ok());
  AwaitWorks(**journal);
  AppendAndWait(**journal, Begin(**journal, "new"), 1);
  (*journal)->Stop();
  CHECK(StreamsLeft(house) == std::vector<std::string>{"new:1"});
}

TEST_CASE("what another version wrote is replaced") {
  const House house;
  REQUIRE(house.Run({"HSET", "stagecoach:journal:{chat}:router", "format", "99"}).ok());
  auto journal = house.Open();
  REQUIRE(journal.ok());
  AwaitWorks(**journal);
  AppendAndWait(**journal, Begin(**journal, "new"), 1);
  (*journal)->Stop();
  CHECK(StreamsLeft(house) == std::vector<std::string>{"new:1"});
}

TEST_CASE("journals of other names in the same Redis are apart, and nothing stays for ever") {
  const House house;
  auto journal = house.Open();
  auto other = Journal::Open({.place = house.server.url() + "?name=other"}, {});
  REQUIRE(journal.ok());
  REQUIRE(other.ok());
  AppendAndWait(**journal, Begin(**journal, "one"), 1);
  const RedisReply keys = *house.Run({"KEYS", "*"});
  CHECK(keys.size() == 4 + 2);
  for (size_t i = 0; i < keys.size(); ++i) {
    CHECK(house.Run({"PTTL", keys.at(i).text()})->number() > 0);
  }
}

TEST_CASE("wrong URLs and passwords are told at the start") {
  const House house;
  const std::string place = house.server.url();
  for (const std::string& wrong : {place + "?name=a/b", place + "?nam=a", place + "/chat"}) {
    CAPTURE(wrong);
    CHECK(Journal::Open({.place = wrong}, {}).status().code() ==
          absl::StatusCode::kInvalidArgument);
  }
  const absl::Status status =
      Journal::Open({.place = "redis://me:secret@" + place.substr(8)}, {}).status();
  CHECK(status.code() == absl::StatusCode::kPermissionDenied);
  CHECK(std::string(status.message()).find("secret") == std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router
