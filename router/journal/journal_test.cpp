#include "router/journal/journal.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <future>

#include "catch2/catch_test_macros.hpp"
#include "catch2/generators/catch_generators.hpp"
#include "common/temp_dir.h"
#include "common/unix_time.h"
#include "router/journal/journal_file.h"
#include "router/journal/testing/journal_places.h"

namespace stagecoach::router {
namespace {

using enum JournalTestPlace::Kind;

v1::RouterRecord Router(const std::string& holder) {
  v1::RouterRecord router;
  router.set_lease_holder(holder);
  return router;
}

v1::StreamRecord Record(const std::string& id) {
  v1::StreamRecord record;
  record.set_request_id(id);
  record.set_arrived_unix_us(static_cast<int64_t>(UnixNanoseconds() / 1000));
  return record;
}

v1::SequenceEvent Token(int32_t token) {
  v1::SequenceEvent event;
  event.set_token(token);
  return event;
}

std::unique_ptr<Journal> Open(const JournalOptions& options, const std::string& holder = "me") {
  auto journal = Journal::Open(options, Router(holder));
  REQUIRE(journal.ok());
  return *std::move(journal);
}

std::unique_ptr<Journal> Open(const TempDir& dir, const std::string& holder = "me") {
  return Open(JournalOptions{.place = dir.path()}, holder);
}

std::unique_ptr<Journal> Open(const JournalTestPlace& place, const std::string& holder = "me") {
  return Open(JournalOptions{.place = place.name()}, holder);
}

// Returns when the event is written, or passed through.
v1::SequenceEvent AppendAndWait(Journal& journal, uint64_t stream, int32_t token) {
  std::promise<v1::SequenceEvent> written;
  journal.Append(stream, Token(token),
                 [&](v1::SequenceEvent event) { written.set_value(std::move(event)); });
  return written.get_future().get();
}

uint64_t BeginStream(Journal& journal, const std::string& id) {
  const uint64_t number = journal.NewNumber();
  journal.Begin(number, Record(id));
  return number;
}

TEST_CASE("a router goes on with the names and the streams of the one before") {
  const JournalTestPlace place(GENERATE(kFolder, kRedis));
  {
    const auto journal = Open(place, "first");
    CHECK(journal->TakeStreams().empty());
    const uint64_t one = BeginStream(*journal, "one");
    const uint64_t two = BeginStream(*journal, "two");
    const uint64_t three = BeginStream(*journal, "three");
    for (int32_t token = 0; token < 100; ++token) {
      CHECK(AppendAndWait(*journal, one, token).token() == token);
    }
    AppendAndWait(*journal, three, 7);
    journal->Remove(two);
  }
  const auto journal = Open(place, "second");
  CHECK(journal->router().lease_holder() == "first");
  const std::vector<Journal::Stream> streams = journal->TakeStreams();
  REQUIRE(streams.size() == 2);
  CHECK(streams[0].record.request_id() == "one");
  REQUIRE(streams[0].events.size() == 100);
  for (int32_t token = 0; token < 100; ++token) CHECK(streams[0].events[token].token() == token);
  CHECK(streams[1].record.request_id() == "three");
  CHECK(journal->NewNumber() > streams[1].number);
  AppendAndWait(*journal, streams[1].number, 8);
  CHECK(journal->Read().n_streams == 2);
}

TEST_CASE("after an orderly end the next router has a lease holder of its own") {
  const JournalTestPlace place(GENERATE(kFolder, kRedis));
  {
    const auto journal = Open(place, "first");
    AppendAndWait(*journal, BeginStream(*journal, "one"), 1);
    journal->StopInOrder();
  }
  {
    const auto journal = Open(place, "second");
    CHECK(journal->router().lease_holder() == "second");
    CHECK(journal->TakeStreams().size() == 1);
  }
  CHECK(Open(place, "third")->router().lease_holder() == "second");
}

TEST_CASE("a second router is told that the journal is taken") {
  const JournalTestPlace place(GENERATE(kFolder, kRedis));
  const auto journal = Open(place);
  const absl::Status status =
      Journal::Open({.place = place.name(), .lease = std::chrono::milliseconds(300)},
                    Router("other"))
          .status();
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(std::string(status.message()).find("another router") != std::string::npos);
}

TEST_CASE("streams that end leave no bytes behind") {
  const JournalTestPlace place(GENERATE(kFolder, kRedis));
  const auto journal = Open(place);
  for (int i = 0; i < 2'000; ++i) {
    const uint64_t stream = BeginStream(*journal, std::string(1'000, 'x'));
    AppendAndWait(*journal, stream, i);
    journal->Remove(stream);
  }
  AppendAndWait(*journal, 0, 0);
  CHECK(journal->Read().n_streams == 0);
  CHECK(journal->Read().n_bytes < 100'000);
}

TEST_CASE("a full journal gives up its oldest streams") {
  const JournalTestPlace place(GENERATE(kFolder, kRedis));
  const auto journal = Open({.place = place.name(), .max_bytes = 200'000});
  for (int i = 0; i < 10; ++i) BeginStream(*journal, std::to_string(i) + std::string(50'000, 'x'));
  AppendAndWait(*journal, 10, 1);
  const Journal::Report report = journal->Read();
  CHECK(report.n_bytes <= 200'000);
  CHECK(report.n_given_up == 10 - report.n_streams);
  CHECK_FALSE(report.failing);
  journal->Stop();
  const auto again = Open(place);
  const auto streams = again->TakeStreams();
  REQUIRE(streams.size() == report.n_streams);
  CHECK(streams.back().record.request_id().front() == '9');
}

// Returns when the journal can be written again.
void AwaitWorks(Journal& journal) {
  while (journal.Read().failing) AppendAndWait(journal, 0, 0);
}

// Kills the process in the middle of its writes, again and again.
TEST_CASE("a killed process loses no event that it was told is written") {
  const auto kind = GENERATE(kFolder, kRedis);
  for (int n_events = 1; n_events < 200; n_events += 40) {
    const JournalTestPlace place(kind);
    int written[2];
    REQUIRE(pipe(written) == 0);
    const pid_t child = fork();
    if (child == 0) {
      auto journal = Journal::Open({.place = place.name()}, Router("child"));
      if (!journal.ok()) _exit(1);
      const uint64_t stream = (*journal)->NewNumber();
      (*journal)->Begin(stream, Record("one"));
      for (int32_t token = 0;; ++token) {
        (*journal)->Append(stream, Token(token), [&](const v1::SequenceEvent& event) {
          const int32_t told = event.token();
          if (write(written[1], &told, sizeof(told)) != sizeof(told)) _exit(1);
        });
      }
    }
    REQUIRE(child > 0);
    close(written[1]);
    int32_t last = -1;
    for (int i = 0; i < n_events; ++i)
      REQUIRE(read(written[0], &last, sizeof(last)) == sizeof(last));
    kill(child, SIGKILL);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    while (read(written[0], &last, sizeof(last)) == sizeof(last)) {
    }
    close(written[0]);

    const auto journal = Open(place);
    const auto streams = journal->TakeStreams();
    REQUIRE(streams.size() == 1);
    REQUIRE(streams[0].events.size() > static_cast<size_t>(last));
    for (size_t i = 0; i < streams[0].events.size(); ++i) {
      REQUIRE(streams[0].events[i].token() == static_cast<int32_t>(i));
    }
  }
}

// The kernel lets this process write no file beyond `n_bytes`, as if the disk were full.
class FullDisk {
 public:
  explicit FullDisk(rlim_t n_bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = n_bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_CASE("a full disk costs what is in the journal, and serving goes on") {
  const TempDir dir;
  const auto journal = Open({.place = dir.path(), .retry_after = std::chrono::milliseconds(0)});
  const uint64_t lost = BeginStream(*journal, "lost");
  AppendAndWait(*journal, lost, 1);
  {
    const FullDisk full(100'000);
    BeginStream(*journal, std::string(200'000, 'x'));
    CHECK(AppendAndWait(*journal, lost, 2).token() == 2);
    CHECK(journal->Read().n_failures > 0);
  }
  CHECK(AppendAndWait(*journal, lost, 3).token() == 3);
  AwaitWorks(*journal);
  AppendAndWait(*journal, BeginStream(*journal, "new"), 4);
  CHECK_FALSE(journal->Read().failing);
  CHECK(journal->Read().n_streams == 1);
  journal->Stop();
  const auto again = Open(dir, "successor");
  CHECK(again->router().lease_holder() == "me");
  const auto streams = again->TakeStreams();
  REQUIRE(streams.size() == 1);
  CHECK(streams[0].record.request_id() == "new");
  CHECK(streams[0].events.size() == 1);
}

TEST_CASE("a damaged journal is replaced") {
  const TempDir dir;
  std::ofstream(JournalFile::PathIn(dir.path())) << std::string(5'000, 'x');
  {
    const auto journal = Open(dir);
    CHECK(journal->Read().n_failures == 1);
    AwaitWorks(*journal);
    AppendAndWait(*journal, BeginStream(*journal, "new"), 4);
    CHECK_FALSE(journal->Read().failing);
  }
  CHECK(Open(dir)->TakeStreams().size() == 1);
}

TEST_CASE("streams whose clients have gone are dropped") {
  const TempDir dir;
  {
    auto file = JournalFile::Open(dir.path());
    REQUIRE(file.ok());
    REQUIRE((*file)->SetRouter(Router("me")).ok());
    v1::StreamRecord old = Record("old");
    old.set_arrived_unix_us(old.arrived_unix_us() - 3'600'000'000);
    REQUIRE((*file)->AddStream(1, 1, old.SerializeAsString()).ok());
  }
  const auto journal = Open({.place = dir.path(), .keep = std::chrono::seconds(60)});
  CHECK(journal->TakeStreams().empty());
}

TEST_CASE("streams that end every router are dropped in the end") {
  const JournalTestPlace place(GENERATE(kFolder, kRedis));
  {
    const auto journal = Open(place);
    AppendAndWait(*journal, BeginStream(*journal, "one"), 1);
  }
  // A router that writes an event has not been ended by the streams.
  for (uint64_t i = 0; i < Journal::kMostRestores; ++i) {
    const auto journal = Open(place);
    const auto streams = journal->TakeStreams();
    REQUIRE(streams.size() == 1);
    AppendAndWait(*journal, streams[0].number, 1);
  }
  for (uint64_t i = 0; i < Journal::kMostRestores; ++i) {
    CHECK(Open(place)->TakeStreams().size() == 1);
  }
  CHECK(Open(place)->TakeStreams().empty());
}

}  // namespace
}  // namespace stagecoach::router
