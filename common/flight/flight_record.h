// A flight file as it lies on disk and, but for the times of its writing, in memory: a header, then
// a ring of records. Little-endian, made of 64-bit words.
//
// A record is of one step. Record `step % n_records` holds it, so that a ring keeps the last
// n_records steps of an epoch. Its first and last word are the step's number; where they differ it
// was being replaced as the file was written, and counts for nothing.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace stagecoach {

// What the times of a record are. A router's first three are: planned, sent to stage 0, result
// here. On a device that runs ahead of the host, a stage's began and input are when the work was
// queued.
enum class FlightTime : size_t { kKnown, kBegan, kInput, kComputed, kSent };
inline constexpr FlightTime kFlightPlanned = FlightTime::kKnown;
inline constexpr FlightTime kFlightDispatched = FlightTime::kBegan;
inline constexpr FlightTime kFlightResult = FlightTime::kInput;
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
  FlightWord stage;  // of a stage; of a router 0
  FlightWord n_stages;
  FlightWord pid;
  FlightWord signal;     // that the file was written on
  FlightWord steady_ns;  // the clock of the records when the file was written
  FlightWord unix_ns;    // and the time of day then
  std::array<FlightWord, kFlightHostBytes / 8> host;
};

struct FlightRecord {
  FlightWord first_step;  // 0: never written
  FlightWord epoch;
  FlightWord tokens;                           // prefill << 32 | decode
  std::array<FlightWord, kFlightTimes> times;  // steady_clock's nanoseconds; 0: not yet
  FlightWord last_step;
};

}  // namespace stagecoach
