#include "router/frontend/stream_store.h"

#include <fmt/format.h>

#include <optional>
#include <thread>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/mutex.h"
#include "router/frontend/new_request_id.h"
#include "router/frontend/router_metrics.h"
#include "router/text/error_code.h"

namespace stagecoach::router {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong(3'600'000);

// A signal that another thread sets once.
class Signal {
 public:
  void Tell(const absl::Status& status) {
    {
      MutexLock lock(mutex_);
      told_ = status;
    }
    changed_.notify_all();
  }
  absl::Status Wait() {
    MutexLock lock(mutex_);
    changed_.wait(lock,
                  [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return told_.has_value(); });
    return *told_;
  }
  bool told() {
    MutexLock lock(mutex_);
    return told_.has_value();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  std::optional<absl::Status> told_ ABSL_GUARDED_BY(mutex_);
};

struct Fixture {
  explicit Fixture(const StreamLimits& limits = {.keep = kLong}) : store(limits, &metrics) {}

  std::unique_ptr<StreamWriter> Create(const std::string& id, const std::string& owner = "a",
                                       Signal* cancelled = nullptr) {
    return CreateAndRead(id, owner, cancelled).writer;
  }
  NewStream CreateAndRead(const std::string& id, const std::string& owner, Signal* cancelled) {
    auto stream = store.Create(owner, {owner}, id, [cancelled](const absl::Status& status) {
      if (cancelled != nullptr) cancelled->Tell(status);
    });
    REQUIRE(stream.ok());
    stream->writer->Start();
    return *std::move(stream);
  }

  // Everything available after the first `from` tokens.
  StreamReader::Piece ReadAll(const std::string& id, uint64_t from = 0,
                              const std::string& owner = "a") {
    auto reader = store.Read(owner, id, from);
    StreamReader::Piece all;
    if (!reader.ok()) {
      all.status = reader.status();
      return all;
    }
    while (true) {
      StreamReader::Piece piece = (*reader)->Next(3);
      all.data += piece.data;
      all.ended = piece.ended;
      all.status = piece.status;
      if (piece.ended || piece.data.empty()) return all;
    }
  }

  const RouterMetrics metrics{"model"};
  StreamStore store;
};

TEST_CASE("a stream can be read from any token, while it runs and after its end") {
  Fixture fixture;
  const auto writer = fixture.Create("s");
  std::string whole;
  for (uint64_t n = 1; n <= 20; ++n) {
    // Some tokens have no text of their own.
    const std::string data = n % 3 == 0 ? "" : fmt::format("<{}>", n);
    writer->Append(n, data);
    whole += data;
    CHECK(fixture.ReadAll("s").data == whole);
    CHECK_FALSE(fixture.ReadAll("s", n).ended);
  }
  writer->Append(20, "[tail]");
  writer->End(absl::OkStatus());
  whole += "[tail]";
  for (uint64_t from = 0; from <= 20; ++from) {
    const StreamReader::Piece rest = fixture.ReadAll("s", from);
    CHECK(rest.ended);
    CHECK(rest.status.ok());
    uint64_t next = from + 1;
    if (next % 3 == 0) ++next;
    const std::string first = next <= 20 ? fmt::format("<{}>", next) : "[tail]";
    CHECK(rest.data == whole.substr(whole.find(first)));
  }
  CHECK(absl::IsInvalidArgument(fixture.ReadAll("s", 21).status));
}

TEST_CASE("a waiting reader is woken for new data, and each of several readers gets all of it") {
  Fixture fixture;
  auto writer = fixture.Create("s");
  constexpr int kReaders = 3;
  std::vector<std::string> heard(kReaders);
  std::vector<int> n_idle_wakes(kReaders);
  std::vector<std::thread> threads;
  for (int i = 0; i < kReaders; ++i) {
    auto reader = fixture.store.Read("a", "s", 0);
    REQUIRE(reader.ok());
    threads.emplace_back([&heard, &n_idle_wakes, i, reader = *std::move(reader)] {
      Mutex mutex;
      CondVar changed;
      int n_wakes = 0;
      reader->OnNews([&] {
        MutexLock lock(mutex);
        ++n_wakes;
        changed.notify_all();
      });
      for (int n_waits = 0;;) {
        const StreamReader::Piece piece = reader->Next(10);
        heard[i] += piece.data;
        if (piece.ended) return;
        if (!piece.data.empty()) continue;
        MutexLock lock(mutex);
        changed.wait(lock,
                     [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) { return n_wakes > n_waits; });
        ++n_waits;
        n_idle_wakes[i] += n_wakes - n_waits;
      }
    });
  }
  std::string whole;
  for (uint64_t n = 1; n <= 1000; ++n) {
    writer->Append(n, std::to_string(n));
    whole += std::to_string(n);
  }
  writer->End(absl::OkStatus());
  for (std::thread& thread : threads) thread.join();
  CHECK(heard == std::vector<std::string>(kReaders, whole));
  CHECK(n_idle_wakes == std::vector<int>(kReaders, 0));
}

TEST_CASE("a stream belongs to its owner, and an owner uses an id for one stream at a time") {
  Fixture fixture;
  const auto mine = fixture.Create("s", "a");
  const auto other = fixture.Create("s", "b");
  mine->Append(1, "mine");
  other->Append(1, "other");
  CHECK(fixture.ReadAll("s", 0, "a").data == "mine");
  CHECK(fixture.ReadAll("s", 0, "b").data == "other");
  CHECK(absl::IsNotFound(fixture.ReadAll("s", 0, "c").status));
  CHECK(ErrorCode(fixture.ReadAll("t").status) == "stream_not_found");
  CHECK(absl::IsNotFound(fixture.store.Cancel("c", "s")));
  CHECK(absl::IsAlreadyExists(fixture.store.Create("a", {}, "s", [](auto&) {}).status()));
}

TEST_CASE("a refused stream is forgotten, and its reader gets the reason") {
  Fixture fixture;
  auto stream = fixture.store.Create("a", {}, "s", [](const absl::Status&) { FAIL(); });
  REQUIRE(stream.ok());
  CHECK_FALSE(stream->reader->Next(1).started);
  stream->writer->End(absl::ResourceExhaustedError("full"));
  const StreamReader::Piece piece = stream->reader->Next(1);
  CHECK_FALSE(piece.started);
  CHECK(absl::IsResourceExhausted(piece.status));
  fixture.Create("s");
}

TEST_CASE("every reader of a failed stream gets its error") {
  Fixture fixture;
  const auto writer = fixture.Create("s");
  writer->Append(1, "one");
  writer->End(absl::UnavailableError("lost"));
  const StreamReader::Piece piece = fixture.ReadAll("s");
  CHECK(piece.data == "one");
  CHECK(absl::IsUnavailable(piece.status));
  CHECK(absl::IsUnavailable(fixture.ReadAll("s", 1).status));
}

TEST_CASE("a cancelled stream ends for all its readers and cannot be resumed") {
  Fixture fixture;
  Signal cancelled;
  const auto writer = fixture.Create("s", "a", &cancelled);
  writer->Append(1, "one");
  const auto reader = fixture.store.Read("a", "s", 0);
  CHECK(fixture.store.Cancel("a", "s").ok());
  CHECK(absl::IsCancelled(cancelled.Wait()));
  writer->Append(2, "two");
  writer->End(absl::OkStatus());
  const StreamReader::Piece piece = (*reader)->Next(10);
  CHECK(piece.data == "one");
  CHECK(absl::IsCancelled(piece.status));
  CHECK(absl::IsNotFound(fixture.ReadAll("s").status));
  fixture.Create("s");
}

TEST_CASE("a stream without a reader is dropped after its time, one with a reader is not") {
  Fixture fixture({.keep = milliseconds(1)});
  Signal dropped;
  const auto writer = fixture.Create("unread", "a", &dropped);
  CHECK(absl::IsCancelled(dropped.Wait()));
  CHECK(absl::IsNotFound(fixture.ReadAll("unread").status));

  Signal left;
  NewStream read = fixture.CreateAndRead("read", "a", &left);
  Signal other;
  const auto unread = fixture.Create("other", "a", &other);
  CHECK(absl::IsCancelled(other.Wait()));  // it was created later
  CHECK_FALSE(left.told());
  read.reader = nullptr;
  CHECK(absl::IsCancelled(left.Wait()));
}

TEST_CASE("a stream's cancel callback may own the stream's writer") {
  Fixture fixture({.keep = milliseconds(1)});
  struct Request {
    std::unique_ptr<StreamWriter> writer;
  };
  Signal dropped;
  auto request = std::make_shared<Request>();
  auto stream = fixture.store.Create(
      "a", {}, "s", [request, &dropped](const absl::Status& status) { dropped.Tell(status); });
  REQUIRE(stream.ok());
  request->writer = std::move(stream->writer);
  request->writer->Start();
  request = nullptr;
  stream->reader = nullptr;
  CHECK(absl::IsCancelled(dropped.Wait()));
  fixture.Create("t");
}

TEST_CASE("at the memory limit the largest owner loses data first, ended streams before running") {
  constexpr size_t kLimit = 40'000;
  Fixture fixture({.keep = kLong, .max_bytes = kLimit});
  const std::string text(900, 'x');
  const auto modest = fixture.Create("modest", "modest");
  for (uint64_t n = 1; n <= 5; ++n) modest->Append(n, text);
  fixture.Create("ended", "greedy")->Append(1, text);
  const auto greedy = fixture.Create("greedy", "greedy");
  for (uint64_t n = 1; n <= 30; ++n) greedy->Append(n, text);
  CHECK(fixture.ReadAll("ended", 0, "greedy").data == text);
  const auto reader = fixture.store.Read("greedy", "greedy", 0);
  CHECK((*reader)->Next(1).data == text);
  for (uint64_t n = 31; n <= 50; ++n) greedy->Append(n, text);

  CHECK(absl::IsNotFound(fixture.ReadAll("ended", 0, "greedy").status));
  CHECK(absl::IsOutOfRange(fixture.ReadAll("greedy", 0, "greedy").status));
  CHECK(absl::IsOutOfRange((*reader)->Next(1).status));
  CHECK(fixture.ReadAll("greedy", 49, "greedy").data == text);
  CHECK(fixture.ReadAll("modest", 0, "modest").data.size() == 5 * text.size());
  size_t kept = 0;
  for (uint64_t n = 0; n < 50; ++n) {
    kept = std::max(kept, fixture.ReadAll("greedy", n, "greedy").data.size());
  }
  CHECK(kept + 5 * text.size() < kLimit);
  CHECK(kept > kLimit / 4);
}

TEST_CASE("the memory limit also holds for a single stream and a single piece") {
  Fixture fixture({.keep = kLong, .max_bytes = 1000});
  const auto writer = fixture.Create("s");
  const auto reader = fixture.store.Read("a", "s", 0);
  writer->Append(1, std::string(5000, 'x'));
  CHECK(absl::IsOutOfRange((*reader)->Next(1).status));
  writer->Append(2, "y");
  CHECK(fixture.ReadAll("s", 1).data == "y");
}

TEST_CASE("above the stream limit, ended streams are dropped; more running ones are refused") {
  Fixture fixture({.keep = kLong, .max_streams = 2});
  const auto first = fixture.Create("first");
  fixture.Create("second")->End(absl::OkStatus());
  const auto third = fixture.Create("third");
  CHECK(absl::IsNotFound(fixture.ReadAll("second").status));
  CHECK(
      absl::IsResourceExhausted(fixture.store.Create("b", {"a"}, "fourth", [](auto&) {}).status()));
  third->End(absl::OkStatus());
  fixture.Create("fourth");
}

TEST_CASE("above the stream limit, the tenant with the most streams loses one") {
  Fixture fixture({.keep = kLong, .max_streams = 4});
  fixture.Create("old", "modest")->End(absl::OkStatus());
  for (const char* id : {"1", "2", "3"}) fixture.Create(id, "greedy")->End(absl::OkStatus());
  fixture.Create("4", "greedy")->End(absl::OkStatus());
  CHECK(absl::IsNotFound(fixture.ReadAll("1", 0, "greedy").status));
  CHECK(fixture.ReadAll("old", 0, "modest").ended);
  // Tenants share places by weight.
  const auto first = fixture.store.Create("heavy", {"heavy", 3}, "1", [](auto&) {});
  const auto second = fixture.store.Create("heavy", {"heavy", 3}, "2", [](auto&) {});
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  CHECK(absl::IsNotFound(fixture.ReadAll("3", 0, "greedy").status));
  CHECK(fixture.ReadAll("4", 0, "greedy").ended);
  CHECK(fixture.ReadAll("old", 0, "modest").ended);
}

TEST_CASE("a tenant below its share gets a place even while all of another's streams run") {
  Fixture fixture({.keep = kLong, .max_streams = 3});
  Signal lost;
  const auto first = fixture.Create("first", "greedy", &lost);
  auto second = fixture.CreateAndRead("second", "greedy", nullptr);
  const auto third = fixture.Create("third", "greedy");
  CHECK(absl::IsResourceExhausted(
      fixture.store.Create("greedy", {"greedy"}, "fourth", [](auto&) {}).status()));

  // A stream with a reader continues, and can be read as long as it has one.
  const auto mine = fixture.Create("mine", "modest");
  second.writer->Append(1, "on");
  CHECK(second.reader->Next(1).data == "on");
  CHECK(fixture.ReadAll("second", 0, "greedy").data == "on");
  second.reader = nullptr;
  CHECK(absl::IsNotFound(fixture.ReadAll("second", 0, "greedy").status));
  CHECK_FALSE(lost.told());

  // A stream without a reader is cancelled if there is nothing else to take.
  const auto another = fixture.Create("another", "third");
  CHECK(absl::IsCancelled(lost.Wait()));
  CHECK(absl::IsResourceExhausted(
      fixture.store.Create("greedy", {"greedy"}, "fifth", [](auto&) {}).status()));
  mine->Append(1, "mine");
  CHECK(fixture.ReadAll("mine", 0, "modest").data == "mine");
}

TEST_CASE("a request for a stream of another replica gets an error that says so") {
  Fixture fixture;
  const auto code = [&](const std::string& id) {
    return std::string(ErrorCode(fixture.ReadAll(id).status));
  };
  const std::string mine = NewRequestId();
  std::string other = mine;
  other[0] = other[0] == '0' ? '1' : '0';
  CHECK(code(mine) == "stream_not_found");
  CHECK(code(other) == "stream_on_other_replica");
  CHECK(code(other + "0") == "stream_not_found");
  CHECK(code("mine") == "stream_not_found");
  const absl::Status status = fixture.ReadAll(other).status;
  CHECK(std::string(status.message()).find("another replica") != std::string::npos);
  const auto chosen = fixture.Create(other);  // a client may choose such an id
  CHECK(fixture.ReadAll(other).status.ok());
}

TEST_CASE("a store that keeps no streams says so") {
  Fixture fixture({.keep = milliseconds(0)});
  CHECK(absl::IsInvalidArgument(fixture.store.Create("a", {}, "s", [](auto&) {}).status()));
}

TEST_CASE("a stream tells when it is dropped, but not when the store goes") {
  int n_removed = 0;
  RouterMetrics metrics("model");
  {
    StreamStore store({.keep = kLong}, &metrics);
    const auto make = [&](const std::string& id) {
      auto stream = store.Create("a", {"a"}, id, [](const absl::Status&) {}, [&] { ++n_removed; });
      REQUIRE(stream.ok());
      stream->writer->Start();
      return *std::move(stream);
    };
    const NewStream kept = make("kept"), cancelled = make("cancelled");
    CHECK(store.Cancel("a", "cancelled").ok());
    CHECK(n_removed == 1);
  }
  CHECK(n_removed == 1);
}

}  // namespace
}  // namespace stagecoach::router
