#include "cli/bench/report.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::bench {
namespace {

using Catch::Approx;
using std::chrono::milliseconds;

TEST_CASE("percentiles use the nearest rank") {
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  const Distribution values = Distribute(samples);
  CHECK(values.n == 100);
  CHECK(values.mean == 50.5);
  CHECK(values.p50 == 50);
  CHECK(values.p90 == 90);
  CHECK(values.p99 == 99);
  CHECK(values.max == 100);
  CHECK(Distribute({7}).p99 == 7);
  CHECK(Distribute({}).n == 0);
}

TEST_CASE("the report computes TTFT, ITL, TPOT and E2E from a stream's times") {
  const Clock::time_point start{};
  RequestRecord record{.sent = start,
                       .done = start + milliseconds(110),
                       .arrivals = {{start + milliseconds(40), 1},
                                    {start + milliseconds(60), 1},
                                    {start + milliseconds(100), 2}},
                       .prompt_tokens = 9,
                       .status = absl::OkStatus()};
  const RequestRecord failed{.status = absl::UnavailableError("gone")};
  const Report report =
      Summarize(LoadResult{.records = {record, failed}, .duration = milliseconds(500)});
  CHECK(report.n_ok == 1);
  CHECK(report.n_failed == 1);
  CHECK(report.first_error == "UNAVAILABLE: gone");
  CHECK(report.output_tokens == 4);
  CHECK(report.prompt_tokens == 9);
  CHECK(report.output_tokens_per_s() == Approx(8));
  CHECK(report.total_tokens_per_s() == Approx(26));
  CHECK(report.ttft_ms.p50 == Approx(40));
  CHECK(report.itl_ms.n == 3);
  CHECK(report.itl_ms.max == Approx(20));
  CHECK(report.tpot_ms.p50 == Approx(20));
  CHECK(report.e2e_ms.p50 == Approx(110));
}

TEST_CASE("the numbers of consecutive runs are added up") {
  const LoadResult run{.records = std::vector<RequestRecord>(2), .duration = milliseconds(100)};
  const Report report = Summarize(std::vector<LoadResult>(3, run));
  CHECK(report.n_ok == 6);
  CHECK(report.duration_s == Approx(0.3));
}

TEST_CASE("the JSON contains every number") {
  const boost::json::object json = ToJson(Summarize(LoadResult{}));
  for (const char* key : {"duration_s", "prompt_tokens", "output_tokens", "requests_per_s",
                          "output_tokens_per_s", "total_tokens_per_s"}) {
    CHECK(json.contains(key));
  }
  for (const char* key : {"ttft_ms", "itl_ms", "tpot_ms", "e2e_ms"}) {
    CHECK(json.at(key).at("p99").is_number());
  }
}

}  // namespace
}  // namespace stagecoach::bench
