#include "common/flight/flight_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>

namespace stagecoach {
namespace {

constexpr size_t kMostStages = 1 << 16;

// The structs of flight_record.h consist only of words, so their offsets apply to the file.
uint64_t Word(std::string_view bytes, size_t offset) {
  uint64_t word;
  std::memcpy(&word, bytes.data() + offset, sizeof(word));
  return word;
}

#define HEADER_WORD(field) Word(bytes, offsetof(FlightHeader, field))
#define RECORD_WORD(field) Word(record, offsetof(FlightRecord, field))

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("not a flight recorder file: {}", what));
}

}  // namespace

absl::StatusOr<FlightLog> ParseFlight(std::string_view bytes) {
  if (bytes.size() < sizeof(FlightHeader)) return Malformed("it is too short");
  if (HEADER_WORD(magic) != kFlightMagic) return Malformed("it has a wrong magic number");
  const uint64_t n_records = HEADER_WORD(n_records);
  if (HEADER_WORD(header_bytes) != sizeof(FlightHeader) ||
      HEADER_WORD(record_bytes) != sizeof(FlightRecord) || n_records > kFlightRecords ||
      bytes.size() != sizeof(FlightHeader) + n_records * sizeof(FlightRecord)) {
    return Malformed("it is incomplete, or from another version");
  }
  FlightLog log;
  if (HEADER_WORD(role) > static_cast<uint64_t>(FlightRole::kStage) ||
      HEADER_WORD(stage) >= kMostStages || HEADER_WORD(n_stages) > kMostStages) {
    return Malformed("its stage number is invalid");
  }
  log.role = static_cast<FlightRole>(HEADER_WORD(role));
  log.stage = static_cast<uint32_t>(HEADER_WORD(stage));
  log.n_stages = static_cast<uint32_t>(HEADER_WORD(n_stages));
  log.pid = HEADER_WORD(pid);
  log.signal = static_cast<int>(HEADER_WORD(signal));
  log.written_unix_ns = static_cast<int64_t>(HEADER_WORD(unix_ns));
  log.host = bytes.substr(offsetof(FlightHeader, host), kFlightHostBytes);
  log.host.resize(std::min(log.host.size(), log.host.find('\0')));

  const uint64_t to_unix = HEADER_WORD(unix_ns) - HEADER_WORD(steady_ns);
  for (size_t i = 0; i < n_records; ++i) {
    const std::string_view record =
        bytes.substr(sizeof(FlightHeader) + i * sizeof(FlightRecord), sizeof(FlightRecord));
    FlightStep step;
    step.step = RECORD_WORD(first_step);
    if (step.step == 0 || step.step != RECORD_WORD(last_step)) continue;
    step.epoch = RECORD_WORD(epoch);
    step.n_prefill_tokens = static_cast<uint32_t>(RECORD_WORD(tokens) >> 32);
    step.n_decode_tokens = static_cast<uint32_t>(RECORD_WORD(tokens));
    for (size_t t = 0; t < kFlightTimes; ++t) {
      const uint64_t time = Word(record, offsetof(FlightRecord, times) + t * sizeof(FlightWord));
      step.times[t] = time == 0 ? 0 : static_cast<int64_t>(time + to_unix);
    }
    log.steps.push_back(step);
  }
  std::sort(log.steps.begin(), log.steps.end(), [](const FlightStep& a, const FlightStep& b) {
    return std::tie(a.epoch, a.step) < std::tie(b.epoch, b.step);
  });
  return log;
}

absl::StatusOr<FlightLog> ReadFlightFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  if (!file) return absl::NotFoundError(fmt::format("{}: cannot be read", path));
  absl::StatusOr<FlightLog> log = ParseFlight(bytes);
  if (log.ok()) return log;
  return absl::InvalidArgumentError(
      fmt::format("{}: {}", path, std::string(log.status().message())));
}

}  // namespace stagecoach
