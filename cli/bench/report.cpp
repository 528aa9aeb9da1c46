#include "cli/bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/value.hpp>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

namespace stagecoach::bench {
namespace {

double Milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

struct Samples {
  std::vector<double> ttft_ms, itl_ms, tpot_ms, e2e_ms;
};

void AddRecord(const RequestRecord& record, Report& report, Samples& samples) {
  if (!record.status.ok()) {
    ++report.n_failed;
    if (report.first_error.empty()) report.first_error = record.status.ToString();
    return;
  }
  ++report.n_ok;
  report.prompt_tokens += record.prompt_tokens;
  samples.e2e_ms.push_back(Milliseconds(record.done - record.sent));
  if (record.arrivals.empty()) return;

  const Clock::time_point first = record.arrivals.front().time;
  samples.ttft_ms.push_back(Milliseconds(first - record.sent));
  uint64_t n_tokens = record.arrivals.front().n_tokens;
  Clock::time_point before = first;
  for (const Arrival& arrival : std::span(record.arrivals).subspan(1)) {
    const double gap_ms = Milliseconds(arrival.time - before) / arrival.n_tokens;
    samples.itl_ms.insert(samples.itl_ms.end(), arrival.n_tokens, gap_ms);
    before = arrival.time;
    n_tokens += arrival.n_tokens;
  }
  report.output_tokens += n_tokens;
  const uint64_t n_after_first = n_tokens - record.arrivals.front().n_tokens;
  if (n_after_first > 0) samples.tpot_ms.push_back(Milliseconds(before - first) / n_after_first);
}

boost::json::object ToJson(const Distribution& values) {
  return {{"n", values.n},     {"mean", values.mean}, {"p50", values.p50},
          {"p90", values.p90}, {"p99", values.p99},   {"max", values.max}};
}

}  // namespace

Distribution Distribute(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](double share) {
    const auto rank = static_cast<size_t>(std::ceil(share * samples.size()));
    return samples[std::clamp<size_t>(rank, 1, samples.size()) - 1];
  };
  return {.n = samples.size(),
          .mean = std::accumulate(samples.begin(), samples.end(), 0.0) / samples.size(),
          .p50 = at(0.5),
          .p90 = at(0.9),
          .p99 = at(0.99),
          .max = samples.back()};
}

Report Summarize(const std::vector<LoadResult>& results) {
  Report report;
  Samples samples;
  for (const LoadResult& result : results) {
    report.duration_s += std::chrono::duration<double>(result.duration).count();
    for (const RequestRecord& record : result.records) AddRecord(record, report, samples);
  }
  report.ttft_ms = Distribute(std::move(samples.ttft_ms));
  report.itl_ms = Distribute(std::move(samples.itl_ms));
  report.tpot_ms = Distribute(std::move(samples.tpot_ms));
  report.e2e_ms = Distribute(std::move(samples.e2e_ms));
  return report;
}

Report Summarize(const LoadResult& result) { return Summarize(std::vector<LoadResult>{result}); }

std::string ToTable(const Report& report) {
  std::string out = fmt::format(
      "requests          {:>12}   failed {}\n"
      "duration          {:>12.2f} s\n"
      "prompt tokens     {:>12}\n"
      "output tokens     {:>12}\n"
      "requests / s      {:>12.2f}\n"
      "output tokens / s {:>12.1f}\n"
      "total tokens / s  {:>12.1f}\n\n"
      "{:<8}{:>12}{:>12}{:>12}{:>12}{:>12}\n",
      report.n_ok, report.n_failed, report.duration_s, report.prompt_tokens, report.output_tokens,
      report.requests_per_s(), report.output_tokens_per_s(), report.total_tokens_per_s(), "ms",
      "mean", "p50", "p90", "p99", "max");
  for (const auto& [name, values] :
       {std::pair{"TTFT", &report.ttft_ms}, std::pair{"ITL", &report.itl_ms},
        std::pair{"TPOT", &report.tpot_ms}, std::pair{"E2E", &report.e2e_ms}}) {
    out += fmt::format("{:<8}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}{:>12.2f}\n", name, values->mean,
                       values->p50, values->p90, values->p99, values->max);
  }
  return out;
}

boost::json::object ToJson(const Report& report) {
  return {{"requests", {{"ok", report.n_ok}, {"failed", report.n_failed}}},
          {"duration_s", report.duration_s},
          {"prompt_tokens", report.prompt_tokens},
          {"output_tokens", report.output_tokens},
          {"requests_per_s", report.requests_per_s()},
          {"output_tokens_per_s", report.output_tokens_per_s()},
          {"total_tokens_per_s", report.total_tokens_per_s()},
          {"ttft_ms", ToJson(report.ttft_ms)},
          {"itl_ms", ToJson(report.itl_ms)},
          {"tpot_ms", ToJson(report.tpot_ms)},
          {"e2e_ms", ToJson(report.e2e_ms)}};
}

}  // namespace stagecoach::bench
