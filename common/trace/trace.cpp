#include "common/trace/trace.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>

namespace stagecoach {
namespace {

constexpr size_t kTraceparentBytes = 55;  // 00-<32 digits>-<16 digits>-<2 digits>
constexpr uint8_t kSampledFlag = 1;

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;  // W3C forbids upper case
  return -1;
}

bool ParseHex(std::string_view text, std::span<uint8_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    const int high = HexValue(text[2 * i]), low = HexValue(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    out[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

bool IsZero(std::span<const uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](uint8_t byte) { return byte == 0; });
}

template <typename Id>
Id RandomId() {
  thread_local std::mt19937_64 generator([] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }());
  Id id;
  do {
    for (size_t i = 0; i < id.size(); i += 8) {
      const uint64_t word = generator();
      std::memcpy(id.data() + i, &word, 8);
    }
  } while (IsZero(id));
  return id;
}

}  // namespace

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  if (text.size() < kTraceparentBytes) return std::nullopt;
  if (text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  std::array<uint8_t, 1> version, flags;
  TraceContext context;
  if (!ParseHex(text.substr(0), version) || !ParseHex(text.substr(3), context.trace_id) ||
      !ParseHex(text.substr(36), context.span_id) || !ParseHex(text.substr(53), flags)) {
    return std::nullopt;
  }
  // Later versions may append fields after the ones that this version has.
  if (version[0] == 0xff) return std::nullopt;
  if (version[0] == 0 && text.size() != kTraceparentBytes) return std::nullopt;
  if (text.size() > kTraceparentBytes && text[kTraceparentBytes] != '-') return std::nullopt;
  if (IsZero(context.trace_id) || IsZero(context.span_id)) return std::nullopt;
  context.sampled = (flags[0] & kSampledFlag) != 0;
  return context;
}

TraceId NewTraceId() { return RandomId<TraceId>(); }
SpanId NewSpanId() { return RandomId<SpanId>(); }

bool SampledByRatio(const TraceId& id, double ratio) {
  if (ratio >= 1) return true;
  uint64_t word = 0;
  for (size_t i = 8; i < 16; ++i) word = word << 8 | id[i];
  return static_cast<double>(word) < ratio * std::ldexp(1.0, 64);
}

}  // namespace stagecoach
