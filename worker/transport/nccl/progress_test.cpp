#include "worker/transport/nccl/progress.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach::worker {
namespace {

using std::chrono::seconds;

TEST_CASE("progress: only queued and unfinished messages count as stalled") {
  Progress progress;
  const Progress::Clock::time_point start{seconds(1000)};
  CHECK(progress.Stalled(0, 0, start) == seconds(0));
  // The time of an idle queue does not count; time starts with the first message.
  CHECK(progress.Stalled(0, 0, start + seconds(500)) == seconds(0));
  CHECK(progress.Stalled(2, 0, start + seconds(600)) == seconds(0));
  CHECK(progress.Stalled(2, 0, start + seconds(607)) == seconds(7));
  // A later message that is queued meanwhile changes nothing. A finished message restarts the time.
  CHECK(progress.Stalled(3, 0, start + seconds(609)) == seconds(9));
  CHECK(progress.Stalled(3, 1, start + seconds(610)) == seconds(0));
  CHECK(progress.Stalled(3, 1, start + seconds(614)) == seconds(4));
  CHECK(progress.Stalled(3, 3, start + seconds(615)) == seconds(0));
  CHECK(progress.Stalled(3, 3, start + seconds(900)) == seconds(0));
  // As many waiting and as many done as once before, but the waiting message is another one.
  CHECK(progress.Stalled(4, 3, start + seconds(901)) == seconds(0));
}

TEST_CASE("progress: the number of finished messages comes from the events of the last slots") {
  const auto with = [](uint64_t n_queued, uint64_t n_done) {
    return Progress::CountDone(n_queued, 4, [&](uint64_t slot) {
      // The newest message in each slot.
      uint64_t message = slot;
      while (message + 4 < n_queued) message += 4;
      return message < n_done;
    });
  };
  CHECK(with(0, 0) == 0);
  CHECK(with(3, 0) == 0);
  CHECK(with(3, 2) == 2);
  CHECK(with(3, 3) == 3);
  CHECK(with(10, 7) == 7);
  CHECK(with(10, 10) == 10);
  CHECK(with(10, 6) == 6);
}

TEST_CASE("the stall limit allows for one step of every stage") {
  constexpr std::chrono::seconds kStep(2);
  for (const int32_t n_stages : {2, 4, 8}) {
    // The tokens of a prompt's last chunk are announced while the earlier chunks are still running.
    CHECK(StallLimit(kStep, n_stages) >= (n_stages + 1) * kStep);
  }
}

}  // namespace
}  // namespace stagecoach::worker
