#include "router/frontend/request_trace.h"

#include <utility>

namespace stagecoach::router {

std::optional<RequestTrace> RequestTrace::Begin(const TraceOptions& options,
                                                std::string_view traceparent) {
  if (options.spans == nullptr) return std::nullopt;
  const std::optional<TraceContext> caller = ParseTraceparent(traceparent);
  RequestTrace trace;
  trace.spans_ = options.spans;
  trace.trace_id_ = caller ? caller->trace_id : NewTraceId();
  if (caller) trace.caller_ = caller->span_id;
  const bool sampled =
      caller ? caller->sampled : SampledByRatio(trace.trace_id_, options.sample_ratio);
  if (!sampled) return std::nullopt;
  trace.request_ = NewSpanId();
  trace.prefill_ = NewSpanId();
  trace.decode_ = NewSpanId();
  return trace;
}

TraceSpan RequestTrace::Child(std::string name, const SpanId& parent, Time begin, Time end) const {
  return {.trace_id = trace_id_,
          .span_id = NewSpanId(),
          .parent = parent,
          .name = std::move(name),
          .begin_unix_ns = clock_.At(begin),
          .end_unix_ns = clock_.At(end),
          .attributes = {},
          .error = ""};
}

void RequestTrace::AddStep(const TracedStep& step) const {
  TraceSpan span =
      Child(step.decode ? "decode step" : "prefill chunk", step.decode ? decode_ : prefill_,
            step.planned, std::chrono::steady_clock::now());
  span.span_id = step.span_id;
  span.attributes = {{"stagecoach.step", static_cast<int64_t>(step.step)},
                     {"stagecoach.position", static_cast<int64_t>(step.start)},
                     {"stagecoach.tokens", static_cast<int64_t>(step.n_tokens)}};
  spans_->Add(std::move(span));
}

void RequestTrace::End(const std::string& request_id, const std::string& model, Time arrival,
                       std::optional<Time> scheduled, std::optional<Time> first_token,
                       const Facts& facts) const {
  const Time end = std::chrono::steady_clock::now();
  TraceSpan request = Child("request", caller_.value_or(SpanId{}), arrival, end);
  request.span_id = request_;
  request.parent = caller_;
  request.is_server = true;
  request.attributes = {
      {"gen_ai.request.model", model},
      {"gen_ai.request.id", request_id},
      {"gen_ai.usage.input_tokens", static_cast<int64_t>(facts.n_prompt_tokens)},
      {"gen_ai.usage.output_tokens", static_cast<int64_t>(facts.n_completion_tokens)}};
  request.error = facts.error;
  spans_->Add(std::move(request));
  spans_->Add(Child("queue", request_, arrival, scheduled.value_or(end)));
  if (!scheduled) return;
  TraceSpan prefill = Child("prefill", request_, *scheduled, first_token.value_or(end));
  prefill.span_id = prefill_;
  spans_->Add(std::move(prefill));
  if (!first_token) return;
  TraceSpan decode = Child("decode", request_, *first_token, end);
  decode.span_id = decode_;
  spans_->Add(std::move(decode));
}

}  // namespace stagecoach::router
