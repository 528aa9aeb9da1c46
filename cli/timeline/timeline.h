// Merges the flight recorder files of a router and its stages into one timeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flight/flight_file.h"

namespace stagecoach::timeline {

enum class Doing : uint8_t {
  kDispatch,   // router: planned, not yet sent
  kInFlight,   // router: sent, no result yet
  kRecover,    // router: a stage was lost; begins before the first step of an epoch
  kWaitInput,  // stage: ready for the step, its input has not arrived
  kCompute,
  kSend,  // stage: the next stage's queue is full
};
// Display name, for example "compute".
const char* Name(Doing doing);
// Whether the router does it. It works on several steps at a time.
constexpr bool IsRouters(Doing doing) { return doing <= Doing::kRecover; }

struct Span {
  uint64_t step = 0;
  Doing doing = Doing::kCompute;
  uint32_t n_prefill_tokens = 0;
  uint32_t n_decode_tokens = 0;
  int64_t begin_ns = 0;  // since the timeline's start
  int64_t end_ns = 0;
  // The span had not ended when the file was written; end_ns is the time of writing.
  bool open = false;
};

struct Lane {
  std::string name;  // "router", "stage 1"
  uint64_t pid = 0;
  std::vector<Span> spans;  // sorted by begin_ns
};

struct Timeline {
  uint64_t epoch = 0;
  int64_t start_unix_ns = 0;
  int64_t length_ns = 0;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  std::vector<Lane> lanes;  // the router, then the stages in order
};

// The last `n_steps` steps of the newest epoch in `logs`. If a process has two files, the later one
// is used. INVALID_ARGUMENT if nothing was recorded.
absl::StatusOr<Timeline> MakeTimeline(const std::vector<FlightLog>& logs, uint64_t n_steps);

// Draws the lanes over time; readable on light and dark pages.
std::string ToSvg(const Timeline& timeline);
// JSON for chrome://tracing and Perfetto.
std::string ToChromeTrace(const Timeline& timeline);

}  // namespace stagecoach::timeline
