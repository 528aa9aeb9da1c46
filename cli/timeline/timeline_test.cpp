#include "cli/timeline/timeline.h"

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>

namespace stagecoach::timeline {
namespace {

constexpr int64_t kStart = 1'000'000'000;

FlightStep Step(uint64_t number, std::initializer_list<int64_t> times, uint32_t n_prefill = 0) {
  FlightStep step{.epoch = 5, .step = number, .n_prefill_tokens = n_prefill, .n_decode_tokens = 2};
  size_t i = 0;
  for (const int64_t time : times) step.times[i++] = time == 0 ? 0 : kStart + time;
  return step;
}

FlightLog Log(FlightRole role, uint32_t stage, std::vector<FlightStep> steps) {
  return {.role = role,
          .stage = stage,
          .n_stages = 2,
          .pid = 100 + stage,
          .signal = 10,
          .written_unix_ns = kStart + 10'000'000,
          .host = "h",
          .steps = std::move(steps)};
}

std::vector<FlightLog> TwoStages() {
  return {Log(FlightRole::kStage, 1, {Step(1, {5000, 6000, 9000, 12'000, 12'100})}),
          Log(FlightRole::kRouter, 0, {Step(1, {1000, 2000, 13'000}), Step(2, {3000, 4000, 0})}),
          Log(FlightRole::kStage, 0,
              {Step(1, {2500, 3000, 3100, 8000, 8900}, 7), Step(2, {4500, 8900, 9000, 0})})};
}

TEST_CASE("each program's file becomes a lane, router first, starting at the first plan") {
  const auto timeline = MakeTimeline(TwoStages(), 100);
  REQUIRE(timeline.ok());
  CHECK(timeline->epoch == 5);
  CHECK(timeline->start_unix_ns == kStart + 1000);
  CHECK(timeline->first_step == 1);
  CHECK(timeline->last_step == 2);
  REQUIRE(timeline->lanes.size() == 3);
  CHECK(timeline->lanes[0].name == "router");
  CHECK(timeline->lanes[1].name == "stage 0");
  CHECK(timeline->lanes[2].name == "stage 1");
  const std::vector<Span>& spans = timeline->lanes[1].spans;
  REQUIRE(spans.size() == 5);
  CHECK(spans[0].doing == Doing::kWaitInput);
  CHECK(spans[1].doing == Doing::kCompute);
  CHECK(spans[1].n_prefill_tokens == 7);
  CHECK(spans[1].begin_ns == 2100);
  CHECK(spans[1].end_ns == 7000);
  CHECK(spans[2].doing == Doing::kSend);
  CHECK_FALSE(spans[2].open);
  // The step was still running when the file was written.
  CHECK(spans[4].doing == Doing::kCompute);
  CHECK(spans[4].open);
  CHECK(spans[4].end_ns == 10'000'000 - 1000);
}

TEST_CASE("only the last steps of the newest epoch are drawn") {
  std::vector<FlightLog> logs = TwoStages();
  FlightStep old = Step(900, {1, 2, 3});
  old.epoch = 4;
  logs.push_back(Log(FlightRole::kStage, 7, {old}));
  const auto timeline = MakeTimeline(logs, 1);
  REQUIRE(timeline.ok());
  CHECK(timeline->first_step == 2);
  REQUIRE(timeline->lanes.size() == 3);
  for (const Lane& lane : timeline->lanes) {
    for (const Span& span : lane.spans) CHECK(span.step == 2);
  }
}

TEST_CASE("an epoch that repairs a loss begins with the recovery") {
  std::vector<FlightLog> logs = TwoStages();
  logs[1].steps[0].times[static_cast<size_t>(kFlightLost)] = kStart + 100;
  logs[1].steps[0].times[static_cast<size_t>(kFlightRejoined)] = kStart + 900;
  const auto timeline = MakeTimeline(logs, 100);
  REQUIRE(timeline.ok());
  CHECK(timeline->start_unix_ns == kStart + 100);
  const Span& recovery = timeline->lanes[0].spans[0];
  CHECK(recovery.doing == Doing::kRecover);
  CHECK(recovery.begin_ns == 0);
  CHECK(recovery.end_ns == 800);
  CHECK(ToSvg(*timeline).find("class=\"recovery\"") != std::string::npos);
  CHECK(MakeTimeline(logs, 1)->lanes[0].spans[0].doing == Doing::kDispatch);
}

TEST_CASE("if one stage has two files, the newer one is used") {
  std::vector<FlightLog> logs = TwoStages();
  logs.push_back(Log(FlightRole::kStage, 0, {Step(1, {2500, 3000, 3100, 8000, 8900})}));
  logs.back().written_unix_ns += 5;
  const auto timeline = MakeTimeline(logs, 100);
  REQUIRE(timeline.ok());
  CHECK(timeline->lanes[1].spans.size() == 3);
}

TEST_CASE("a timeline without steps is an error") {
  CHECK(absl::IsInvalidArgument(MakeTimeline({}, 10).status()));
  CHECK(absl::IsInvalidArgument(MakeTimeline({Log(FlightRole::kRouter, 0, {})}, 10).status()));
}

TEST_CASE("the drawing has a bar for every span and marks unfinished ones") {
  const auto timeline = MakeTimeline(TwoStages(), 100);
  REQUIRE(timeline.ok());
  const std::string svg = ToSvg(*timeline);
  CHECK(svg.find("var(") == std::string::npos);  // only browsers support it
  CHECK(svg.starts_with("<svg "));
  CHECK(svg.ends_with("</svg>\n"));
  CHECK(svg.find("step 1: compute, 5 us; 7 prompt tokens, 2 decodes") != std::string::npos);
  CHECK(svg.find("step 2: compute, 9.99 ms, not ended") != std::string::npos);
  CHECK(svg.find("prefers-color-scheme: dark") != std::string::npos);
  size_t n_bars = 0;
  for (size_t at = svg.find("<title>step"); at != std::string::npos;
       at = svg.find("<title>step", at + 1)) {
    ++n_bars;
  }
  CHECK(n_bars == 4 + 5 + 3);
}

TEST_CASE("the trace is in Chrome's JSON format, with asynchronous events for overlapping steps") {
  const auto timeline = MakeTimeline(TwoStages(), 100);
  REQUIRE(timeline.ok());
  const boost::json::value trace = boost::json::parse(ToChromeTrace(*timeline));
  size_t n_begun = 0, n_ended = 0, n_whole = 0;
  for (const boost::json::value& event : trace.at("traceEvents").as_array()) {
    const std::string_view phase = event.at("ph").as_string();
    n_begun += phase == "b";
    n_ended += phase == "e";
    if (phase != "X") continue;
    ++n_whole;
    CHECK(event.at("dur").to_number<double>() >= 0);
    if (event.at("name") == "compute 1" && event.at("pid") == 1) {
      CHECK(event.at("ts").to_number<double>() == 2.1);
      CHECK(event.at("dur").to_number<double>() == 4.9);
      CHECK(event.at("args").at("prefill_tokens") == 7);
    }
  }
  CHECK(n_begun == 4);
  CHECK(n_ended == 4);
  CHECK(n_whole == 8);
}

}  // namespace
}  // namespace stagecoach::timeline
