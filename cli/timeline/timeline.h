// The flight recorders' files of a router and its stages, put together: who did what, when.
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
  kWaitInput,  // stage: ready for the step, its input is not here
  kCompute,
  kSend,  // stage: the next one's queue is full
};
// "compute", as people read it.
const char* Name(Doing doing);

struct Span {
  uint64_t step = 0;
  Doing doing = Doing::kCompute;
  uint32_t n_prefill_tokens = 0;
  uint32_t n_decode_tokens = 0;
  int64_t begin_ns = 0;  // from the timeline's start
  int64_t end_ns = 0;
  bool open = false;  // it had not ended when the file was written, which is where it is cut
};

struct Lane {
  std::string name;  // "router", "stage 1"
  uint64_t pid = 0;
  std::vector<Span> spans;  // by their begin
};

struct Timeline {
  uint64_t epoch = 0;
  int64_t start_unix_ns = 0;
  int64_t length_ns = 0;
  uint64_t first_step = 0;
  uint64_t last_step = 0;
  std::vector<Lane> lanes;  // the router, then the stages in order
};

// The last `n_steps` steps of the newest epoch in `logs`. Of two files of one process the later
// counts. INVALID_ARGUMENT when nothing was recorded.
absl::StatusOr<Timeline> MakeTimeline(const std::vector<FlightLog>& logs, uint64_t n_steps);

// A drawing, lanes over time; readable on light and dark pages.
std::string ToSvg(const Timeline& timeline);
// As JSON, for chrome://tracing and Perfetto.
std::string ToChromeTrace(const Timeline& timeline);

}  // namespace stagecoach::timeline
