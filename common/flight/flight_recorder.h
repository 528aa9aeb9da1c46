// The last steps of a process, kept in memory at next to no cost and written to a file when they
// are asked for or when the process crashes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/flight/flight_record.h"

namespace stagecoach {

// Thread-safe, without locks: a step's Begin comes before its Marks, in any threads.
class FlightRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FlightRecorder(FlightRole role);

  // Which stage this is from now on.
  void SetStage(uint64_t stage, uint64_t n_stages);

  // The record of a step that is new here, with its FlightTime::kKnown.
  void Begin(uint64_t epoch, uint64_t step, uint32_t n_prefill_tokens, uint32_t n_decode_tokens,
             Clock::time_point known);
  // No effect once the step's record has been given to a later one.
  void Mark(uint64_t step, FlightTime what, Clock::time_point when = Clock::now());

  // Writes header and ring. Async-signal-safe; false when that fails.
  bool Write(int fd, int signal);

 private:
  struct Image {
    FlightHeader header{};
    std::array<FlightRecord, kFlightRecords> records{};
  };
  const std::unique_ptr<Image> image_;
};

// From now to the process's end SIGUSR1 writes a file of `recorder`, and so does a signal that ends
// the process for a fault of its own (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT), which then goes on
// as before. Files are FOLDER/PROGRAM-PID-N.flight, N counting from 1; each is told on standard
// error. `folder` "off": signals do what they did, but for SIGUSR1, which does nothing. Once a
// process; `recorder` lives to its end. INVALID_ARGUMENT for a folder that is not there.
absl::Status WriteFlightOnSignals(FlightRecorder* recorder, const std::string& folder,
                                  const std::string& program);

}  // namespace stagecoach
