// Results of a benchmark as numbers, a table and JSON.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/bench/load_runner.h"

namespace stagecoach::bench {

// A percentile is the smallest sample such that this share of the samples is at or below it
// (nearest rank).
struct Distribution {
  size_t n = 0;
  double mean = 0, p50 = 0, p90 = 0, p99 = 0, max = 0;
};
Distribution Distribute(std::vector<double> samples);

// TTFT: time from sending a request to its first token. ITL: time between consecutive tokens;
// tokens that arrive in one message share its gap evenly. TPOT: mean ITL of a request. E2E: time
// from sending a request to the end of its stream.
struct Report {
  size_t n_ok = 0;
  size_t n_failed = 0;
  std::string first_error;  // of the failed requests, in order
  double duration_s = 0;
  uint64_t prompt_tokens = 0;
  uint64_t output_tokens = 0;
  Distribution ttft_ms, itl_ms, tpot_ms, e2e_ms;  // successful requests only

  double requests_per_s() const { return duration_s > 0 ? n_ok / duration_s : 0; }
  double output_tokens_per_s() const { return duration_s > 0 ? output_tokens / duration_s : 0; }
  double total_tokens_per_s() const {
    return duration_s > 0 ? (prompt_tokens + output_tokens) / duration_s : 0;
  }
};

Report Summarize(const LoadResult& result);
// Combines several consecutive runs of the same load into one report.
Report Summarize(const std::vector<LoadResult>& results);

// Lines for a terminal, each with a trailing line break.
std::string ToTable(const Report& report);
// {"requests": {"ok", "failed"}, "duration_s", "prompt_tokens", "output_tokens", "requests_per_s",
//  "output_tokens_per_s", "total_tokens_per_s", and "ttft_ms", "itl_ms", "tpot_ms", "e2e_ms" with
//  {"n", "mean", "p50", "p90", "p99", "max"} each}
boost::json::object ToJson(const Report& report);

}  // namespace stagecoach::bench
