#include "router/frontend/stream_pump.h"

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "catch2/catch_test_macros.hpp"
#include "router/frontend/router_metrics.h"

namespace stagecoach::router {
namespace {

// A client that takes one piece at a time.
class SlowClient final : public StreamPump {
 public:
  SlowClient(std::unique_ptr<StreamReader> reader, std::string* heard, WorkQueue* lane)
      : StreamPump(std::move(reader), /*max_bytes=*/2, lane), heard_(*heard) {}

 private:
  void OnAccepted() override { heard_ += "accepted "; }
  bool Write(std::string data) override {
    heard_ += data + " ";
    return false;
  }
  void End(const absl::Status& status) override {
    heard_ += absl::StatusCodeToString(status.code());
  }

  std::string& heard_;
};

struct Fixture {
  Fixture() {
    auto made = store.Create("a", {}, "s", [](const absl::Status&) {});
    REQUIRE(made.ok());
    writer = std::move(made->writer);
    pump = std::make_shared<SlowClient>(std::move(made->reader), &heard, &lane);
  }
  // What the client has heard after all that was posted to the text thread.
  std::string Heard() {
    std::promise<std::string> promise;
    lane.Post([this, &promise] { promise.set_value(heard); });
    return promise.get_future().get();
  }

  const RouterMetrics metrics{"model"};
  StreamStore store{{.keep = std::chrono::hours(1)}, &metrics};
  std::string heard;
  WorkQueue lane{1};
  std::unique_ptr<StreamWriter> writer;
  std::shared_ptr<StreamPump> pump;
};

TEST_CASE("a pump writes the next piece when the last one is taken, and then the end") {
  Fixture fixture;
  fixture.pump->Start();
  CHECK(fixture.Heard().empty());
  fixture.writer->Start();
  CHECK(fixture.Heard() == "accepted ");
  fixture.writer->Append(1, "1");
  CHECK(fixture.Heard() == "accepted 1 ");
  fixture.writer->Append(2, "2");
  fixture.writer->Append(3, "3");
  fixture.writer->End(absl::UnavailableError("lost"));
  CHECK(fixture.Heard() == "accepted 1 ");
  fixture.pump->WriteDone(true);
  CHECK(fixture.Heard() == "accepted 1 23 ");
  fixture.pump->WriteDone(true);
  CHECK(fixture.Heard() == "accepted 1 23 UNAVAILABLE");
  fixture.pump->Cancel();
  CHECK(fixture.Heard() == "accepted 1 23 UNAVAILABLE");
}

TEST_CASE("a client that leaves during a write gets the end after it, and the stream goes on") {
  Fixture fixture;
  fixture.writer->Start();
  fixture.writer->Append(1, "1");
  fixture.pump->Start();
  fixture.pump->Cancel();
  CHECK(fixture.Heard() == "accepted 1 ");
  fixture.pump->WriteDone(false);
  CHECK(fixture.Heard() == "accepted 1 CANCELLED");
  CHECK(fixture.store.Read("a", "s", 1).ok());
}

TEST_CASE("a client may leave before its pump starts") {
  Fixture fixture;
  fixture.pump->Cancel();
  CHECK(fixture.Heard() == "CANCELLED");
  fixture.pump->Start();
  CHECK(fixture.Heard() == "CANCELLED");
}

}  // namespace
}  // namespace stagecoach::router
