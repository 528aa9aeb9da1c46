#include "common/flight/flight_recorder.h"

#include <unistd.h>

#include <cstring>
#include <ctime>

namespace stagecoach {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
constexpr auto kOrdered = std::memory_order_release;  // ordered after all earlier stores

uint64_t Nanoseconds(FlightRecorder::Clock::time_point time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

uint64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool WriteAll(int fd, const void* bytes, size_t left) {
  const char* at = static_cast<const char*>(bytes);
  while (left > 0) {
    const ssize_t n = write(fd, at, left);
    if (n <= 0) return false;
    at += n;
    left -= static_cast<size_t>(n);
  }
  return true;
}

using RecordWords = std::array<uint64_t, sizeof(FlightRecord) / sizeof(FlightWord)>;

// Reads words in ascending order, to match the order of the stores in Begin.
void ReadAscending(const FlightRecord& record, RecordWords& words) {
  constexpr auto kAcquire = std::memory_order_acquire;
  size_t n = 0;
  words[n++] = record.first_step.load(kAcquire);
  words[n++] = record.epoch.load(kAcquire);
  words[n++] = record.tokens.load(kAcquire);
  for (const FlightWord& time : record.times) words[n++] = time.load(kAcquire);
  words[n++] = record.last_step.load(kAcquire);
}

}  // namespace

FlightRecorder::FlightRecorder(FlightRole role) : image_(std::make_unique<Image>()) {
  FlightHeader& header = image_->header;
  header.magic = kFlightMagic;
  header.header_bytes = sizeof(FlightHeader);
  header.record_bytes = sizeof(FlightRecord);
  header.n_records = kFlightRecords;
  header.role = static_cast<uint64_t>(role);
  header.pid = static_cast<uint64_t>(getpid());
  char host[kFlightHostBytes] = "";
  gethostname(host, sizeof(host) - 1);
  for (size_t i = 0; i < header.host.size(); ++i) {
    uint64_t word;
    std::memcpy(&word, host + 8 * i, 8);
    header.host[i] = word;
  }
}

void FlightRecorder::SetStage(uint64_t stage, uint64_t n_stages) {
  image_->header.stage.store(stage, kRelaxed);
  image_->header.n_stages.store(n_stages, kRelaxed);
}

// Clears last_step first and sets it last. A reader that reads in ascending order therefore sees
// first_step == last_step only for a complete record.
void FlightRecorder::Begin(uint64_t epoch, uint64_t step, uint32_t n_prefill_tokens,
                           uint32_t n_decode_tokens, Clock::time_point known) {
  FlightRecord& record = image_->records[step % kFlightRecords];
  record.last_step.store(0, kOrdered);
  record.first_step.store(0, kOrdered);
  record.epoch.store(epoch, kOrdered);
  record.tokens.store(uint64_t{n_prefill_tokens} << 32 | n_decode_tokens, kOrdered);
  record.times[0].store(Nanoseconds(known), kOrdered);
  for (size_t i = 1; i < kFlightTimes; ++i) record.times[i].store(0, kOrdered);
  record.first_step.store(step, kOrdered);
  record.last_step.store(step, kOrdered);
}

void FlightRecorder::Mark(uint64_t step, FlightTime what, Clock::time_point when) {
  FlightRecord& record = image_->records[step % kFlightRecords];
  if (record.first_step.load(std::memory_order_acquire) != step) return;
  record.times[static_cast<size_t>(what)].store(Nanoseconds(when), kRelaxed);
}

bool FlightRecorder::Write(int fd, int signal) {
  FlightHeader& header = image_->header;
  header.signal.store(static_cast<uint64_t>(signal), kRelaxed);
  header.steady_ns.store(Now(CLOCK_MONOTONIC), kRelaxed);
  header.unix_ns.store(Now(CLOCK_REALTIME), kRelaxed);
  if (!WriteAll(fd, &header, sizeof(header))) return false;
  // Copy the records here instead of passing the ring to write(): the kernel reads memory in an
  // order of its own.
  constexpr size_t kTogether = 32;
  static_assert(kFlightRecords % kTogether == 0);
  RecordWords words[kTogether];
  for (size_t i = 0; i < kFlightRecords; i += kTogether) {
    for (size_t j = 0; j < kTogether; ++j) ReadAscending(image_->records[i + j], words[j]);
    if (!WriteAll(fd, words, sizeof(words))) return false;
  }
  return true;
}

}  // namespace stagecoach
