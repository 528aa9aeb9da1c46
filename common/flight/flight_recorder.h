// Keeps the last steps of a process in memory at almost no cost, and writes them to a file on
// request or when the process crashes.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/flight/flight_record.h"

namespace stagecoach {

// Thread-safe without locks. Begin of a step must come before its Marks; each may run on any
// thread.
class FlightRecorder {
 public:
  using Clock = std::chrono::steady_clock;

  explicit FlightRecorder(FlightRole role);

  // Sets which stage this process runs from now on.
  void SetStage(uint64_t stage, uint64_t n_stages);

  // Starts the record of a step that is new to this process. `known` becomes its
  // FlightTime::kKnown.
  void Begin(uint64_t epoch, uint64_t step, uint32_t n_prefill_tokens, uint32_t n_decode_tokens,
             Clock::time_point known);
  // Has no effect if a later step has replaced the step's record.
  void Mark(uint64_t step, FlightTime what, Clock::time_point when = Clock::now());

  // Writes header and ring. Async-signal-safe. Returns false if writing fails.
  bool Write(int fd, int signal);

 private:
  struct Image {
    FlightHeader header{};
    std::array<FlightRecord, kFlightRecords> records{};
  };
  const std::unique_ptr<Image> image_;
};

// Installs signal handlers that write `recorder` to a file. SIGUSR1 writes a file, and so does a
// signal that a crash raises (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT); after the write, the
// signal has its previous effect. Files are named FOLDER/PROGRAM-PID-N.flight, where N counts from
// 1; each is announced on standard error. If `folder` is "off", crash signals keep their previous
// effect and SIGUSR1 is ignored. Call at most once per process; `recorder` must live until the
// process ends. INVALID_ARGUMENT if the folder does not exist.
absl::Status WriteFlightOnSignals(FlightRecorder* recorder, const std::string& folder,
                                  const std::string& program);

}  // namespace stagecoach
