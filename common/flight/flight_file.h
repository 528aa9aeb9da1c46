// Reads the files that a flight recorder writes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "common/flight/flight_record.h"

namespace stagecoach {

struct FlightStep {
  uint64_t epoch = 0;
  uint64_t step = 0;
  uint32_t n_prefill_tokens = 0;
  uint32_t n_decode_tokens = 0;
  std::array<int64_t, kFlightTimes> times{};  // by FlightTime, ns since 1970; 0: not reached

  int64_t at(FlightTime what) const { return times[static_cast<size_t>(what)]; }
};

struct FlightLog {
  FlightRole role = FlightRole::kRouter;
  uint32_t stage = 0;
  uint32_t n_stages = 0;
  uint64_t pid = 0;
  int signal = 0;
  int64_t written_unix_ns = 0;
  std::string host;
  std::vector<FlightStep> steps;  // sorted by epoch, then step number
};

// INVALID_ARGUMENT if `bytes` is not a complete flight file of this version.
absl::StatusOr<FlightLog> ParseFlight(std::string_view bytes);

// The same for a file. NOT_FOUND if it cannot be read. Error messages name the file.
absl::StatusOr<FlightLog> ReadFlightFile(const std::string& path);

}  // namespace stagecoach
