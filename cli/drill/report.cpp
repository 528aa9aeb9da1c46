#include "cli/drill/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>

#include "cli/bench/report.h"

namespace stagecoach::drill {
namespace {

bool IsIdentical(const Row& row) { return row.n_identical == row.n_streams; }

// "  0.13   0.14": median and maximum; dashes if there is none.
std::string Times(const std::vector<double>& seconds) {
  const bench::Distribution values = bench::Distribute(seconds);
  if (values.n == 0) return fmt::format("{:>8}{:>7}", "-", "-");
  return fmt::format("{:>8.2f}{:>7.2f}", values.p50, values.max);
}

boost::json::object TimesJson(const std::vector<double>& seconds) {
  const bench::Distribution values = bench::Distribute(seconds);
  return {{"n", values.n}, {"median", values.p50}, {"max", values.max}};
}

}  // namespace

std::string TableHead() {
  return fmt::format(
      "{:<44}{:>52}\n"
      "{:<5}{:>6}{:>9}{:>10}{:>6}{:>6}{:>10}{:>15}{:>15}{:>15}\n",
      "", "after the fault, median and longest, in seconds", "fault", "stage", "streams",
      "identical", "error", "hung", "different", "noticed", "recovered", "silent");
}

std::string TableLine(const Row& row) {
  return fmt::format("{:<5}{:>6}{:>9}{:>10}{:>6}{:>6}{:>10}{}{}{}\n", FaultName(row.fault),
                     row.stage, row.n_streams, row.n_identical, row.n_error, row.n_hung,
                     row.n_different, Times(row.noticed_s), Times(row.recovered_s),
                     Times(row.silent_s));
}

std::string TableEnd(std::span<const Row> rows) {
  size_t n_streams = 0, n_other = 0;
  double least_running = 1;
  std::string error;
  for (const Row& row : rows) {
    n_streams += row.n_streams;
    n_other += row.n_streams - row.n_identical;
    least_running = std::min(least_running, row.running_share);
    if (error.empty()) error = row.first_error;
  }
  std::string text =
      n_other == 0 ? fmt::format("all {} streams ended as without a fault\n", n_streams)
                   : fmt::format("{} of {} streams did not end as without a fault{}{}\n", n_other,
                                 n_streams, error.empty() ? "" : "; the first error: ", error);
  if (least_running < 1) {
    text += fmt::format("at a fault only {:.0f} % of the streams still ran: give more --tokens\n",
                        100 * least_running);
  }
  return text;
}

bool AllIdentical(std::span<const Row> rows) { return std::ranges::all_of(rows, IsIdentical); }

boost::json::object ToJson(std::span<const Row> rows) {
  boost::json::array faults;
  for (const Row& row : rows) {
    faults.push_back({{"fault", FaultName(row.fault)},
                      {"stage", row.stage},
                      {"streams", row.n_streams},
                      {"running_share", row.running_share},
                      {"identical", row.n_identical},
                      {"error", row.n_error},
                      {"hung", row.n_hung},
                      {"different", row.n_different},
                      {"first_error", row.first_error},
                      {"noticed_s", TimesJson(row.noticed_s)},
                      {"recovered_s", TimesJson(row.recovered_s)},
                      {"silent_s", TimesJson(row.silent_s)}});
  }
  return {{"all_identical", AllIdentical(rows)}, {"faults", std::move(faults)}};
}

}  // namespace stagecoach::drill
