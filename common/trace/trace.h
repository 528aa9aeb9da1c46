// Traces: a request's history as spans with a common trace id. Ids and header text follow W3C Trace
// Context.
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

// Name of the HTTP header and of the gRPC metadata key.
inline constexpr char kTraceparent[] = "traceparent";

// Empty if the text is malformed. As W3C's specification requires, a new trace then begins here.
std::optional<TraceContext> ParseTraceparent(std::string_view text);

// Random and never zero. Thread-safe.
TraceId NewTraceId();
SpanId NewSpanId();
// True for a share `ratio` of all trace ids, and for the same ids on every machine.
bool SampledByRatio(const TraceId& id, double ratio);

struct TraceSpan {
  using Attribute = std::pair<std::string, std::variant<std::string, int64_t, double>>;

  TraceId trace_id{};
  SpanId span_id{};
  std::optional<SpanId> parent;
  std::string name;
  bool is_server = false;  // span of a request from outside
  uint64_t begin_unix_ns = 0;
  uint64_t end_unix_ns = 0;
  std::vector<Attribute> attributes;
  std::string error;  // empty: none
};

// Receives spans. Thread-safe; never blocks.
class SpanSink {
 public:
  virtual ~SpanSink() = default;
  virtual void Add(TraceSpan span) = 0;
};

}  // namespace stagecoach
