// Layout of a flight file: a header, then a ring of records, all little-endian 64-bit words. Disk
// and memory have the same layout; only the header fields about the write are set while writing.
//
// Each record describes one step. Record `step % n_records` holds step `step`, so the ring keeps
// the last n_records steps of an epoch. The first and the last word of a record are the step
// number. If they differ, the record was being replaced while the file was written, and readers
// skip it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stagecoach {

// The times in a record. On a router the first three mean: planned, sent to stage 0, result
// received. On a device that runs ahead of the host, a stage's kBegan and kInput are the times at
// which the work was queued.
enum class FlightTime : size_t { kKnown, kBegan, kInput, kComputed, kSent };
inline constexpr FlightTime kFlightPlanned = FlightTime::kKnown;
inline constexpr FlightTime kFlightDispatched = FlightTime::kBegan;
inline constexpr FlightTime kFlightResult = FlightTime::kInput;
// On a router, the first step of an epoch that repairs a loss also has the times of the loss and of
// the moment at which all stages had joined again.
inline constexpr FlightTime kFlightLost = FlightTime::kComputed;
inline constexpr FlightTime kFlightRejoined = FlightTime::kSent;
inline constexpr size_t kFlightTimes = 6;  // one is spare

enum class FlightRole : uint64_t { kRouter, kStage };

inline constexpr uint64_t kFlightMagic = 0x31544C4648434353;  // "SCCHFLT1"
inline constexpr size_t kFlightRecords = 4096;
inline constexpr size_t kFlightHostBytes = 64;

using FlightWord = std::atomic<uint64_t>;
static_assert(FlightWord::is_always_lock_free && sizeof(FlightWord) == 8);

struct FlightHeader {
  FlightWord magic;
  FlightWord header_bytes;
  FlightWord record_bytes;
  FlightWord n_records;
  FlightWord role;
  FlightWord stage;  // the stage's number; 0 on a router
  FlightWord n_stages;
  FlightWord pid;
  FlightWord signal;     // the signal that caused the write
  FlightWord steady_ns;  // steady_clock at the write; the records' times use this clock
  FlightWord unix_ns;    // wall-clock time at the write
  std::array<FlightWord, kFlightHostBytes / 8> host;
};

struct FlightRecord {
  FlightWord first_step;  // 0: never written
  FlightWord epoch;
  FlightWord tokens;                           // prefill << 32 | decode
  std::array<FlightWord, kFlightTimes> times;  // steady_clock in ns; 0: not reached yet
  FlightWord last_step;
};

}  // namespace stagecoach
