// The spans that the router makes for one traced request:
//
//   request                  from its arrival to its end
//     queue                  to its first step, tokenizing included
//     prefill                to the first token
//       prefill chunk        a step, from its plan to its result; the parent of the stages' spans
//     decode                 to the end
//       decode step          one decode in many
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/trace/trace.h"
#include "common/unix_time.h"
#include "router/scheduler/request.h"

namespace stagecoach::router {

struct TraceOptions {
  SpanSink* spans = nullptr;  // null: no request is traced
  double sample_ratio = 1;    // for requests without a traceparent
};

class RequestTrace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Facts that are known at the end of a request.
  struct Facts {
    uint64_t n_prompt_tokens = 0;
    uint64_t n_completion_tokens = 0;
    std::string error;  // empty: none
  };

  // Absent if the request is not sampled: `traceparent` decides, or else the ratio.
  static std::optional<RequestTrace> Begin(const TraceOptions& options,
                                           std::string_view traceparent);

  const TraceId& trace_id() const { return trace_id_; }

  // Thread-safe, because it changes no member.
  void AddStep(const TracedStep& step) const;

  // Adds the remaining spans. A time is absent if the request did not get that far.
  void End(const std::string& request_id, const std::string& model, Time arrival,
           std::optional<Time> scheduled, std::optional<Time> first_token,
           const Facts& facts) const;

 private:
  RequestTrace() = default;
  TraceSpan Child(std::string name, const SpanId& parent, Time begin, Time end) const;

  UnixClock clock_;  // one clock for all spans, so that children lie within their parents
  SpanSink* spans_ = nullptr;
  TraceId trace_id_{};
  std::optional<SpanId> caller_;
  SpanId request_{};
  SpanId prefill_{};
  SpanId decode_{};
};

}  // namespace stagecoach::router
