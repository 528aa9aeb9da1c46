// The spans that the router makes of one traced request:
//
//   request                  from its arrival to its end
//     queue                  to its first step, tokenizing included
//     prefill                to the first token
//       prefill chunk        a step, from its plan to its result; stages' spans are below it
//     decode                 to the end
//       decode step          one in many
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
  double sample_ratio = 1;    // of requests whose client does not say
};

class RequestTrace {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // What a request's end says of it.
  struct Facts {
    uint64_t n_prompt_tokens = 0;
    uint64_t n_completion_tokens = 0;
    std::string error;  // empty: none
  };

  // Absent for one that is not sampled: as `traceparent` says, or by the ratio.
  static std::optional<RequestTrace> Begin(const TraceOptions& options,
                                           std::string_view traceparent);

  const TraceId& trace_id() const { return trace_id_; }

  // Thread-safe, as nothing of this changes.
  void AddStep(const TracedStep& step) const;

  // Adds the rest of the spans. Times that did not come are absent.
  void End(const std::string& request_id, const std::string& model, Time arrival,
           std::optional<Time> scheduled, std::optional<Time> first_token,
           const Facts& facts) const;

 private:
  RequestTrace() = default;
  TraceSpan Child(std::string name, const SpanId& parent, Time begin, Time end) const;

  UnixClock clock_;  // for all spans: those below others begin and end within them
  SpanSink* spans_ = nullptr;
  TraceId trace_id_{};
  std::optional<SpanId> caller_;
  SpanId request_{};
  SpanId prefill_{};
  SpanId decode_{};
};

}  // namespace stagecoach::router
