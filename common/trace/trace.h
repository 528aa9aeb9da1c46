// Traces: what a request went through, as spans that share its trace id. Ids and the text that
// carries them are those of W3C's trace context.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace stagecoach {

using TraceId = std::array<uint8_t, 16>;
using SpanId = std::array<uint8_t, 8>;

struct TraceContext {
  TraceId trace_id{};
  SpanId span_id{};  // the caller's span
  bool sampled = false;
};

// The name of the HTTP header and of the gRPC metadata.
inline constexpr char kTraceparent[] = "traceparent";

// Absent for what is not well-formed, as W3C's specification wants: the trace begins here then.
std::optional<TraceContext> ParseTraceparent(std::string_view text);
std::string FormatTraceparent(const TraceContext& context);

// Random, never zero. Thread-safe.
TraceId NewTraceId();
SpanId NewSpanId();
// True for `ratio` of all trace ids, and for the same ones on every machine.
bool SampledByRatio(const TraceId& id, double ratio);

struct TraceSpan {
  using Attribute = std::pair<std::string, std::variant<std::string, int64_t, double>>;

  TraceId trace_id{};
  SpanId span_id{};
  std::optional<SpanId> parent;
  std::string name;
  bool is_server = false;  // the span of a request that came from outside
  uint64_t begin_unix_ns = 0;
  uint64_t end_unix_ns = 0;
  std::vector<Attribute> attributes;
  std::string error;  // empty: none
};

// Where spans go. Thread-safe; never blocks.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void Add(TraceSpan span) = 0;
};

}  // namespace stagecoach
