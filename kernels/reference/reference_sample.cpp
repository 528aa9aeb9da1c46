#include "kernels/reference/reference_sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/check.h"
#include "kernels/philox.h"

namespace stagecoach::kernels {
namespace {

constexpr float kNegativeInfinity = -std::numeric_limits<float>::infinity();

// Ids by descending value; the lower id comes first on a tie.
std::vector<int32_t> Order(const std::vector<float>& values) {
  std::vector<int32_t> ids(values.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return values[a] > values[b]; });
  return ids;
}

// value - max, but 0 if both are the same infinity.
double Below(float value, float max) {
  return value == max ? 0.0 : static_cast<double>(value) - static_cast<double>(max);
}

void LogProbs(const std::vector<float>& raw, const SampleRow& row, SampledToken* out) {
  const std::vector<int32_t> order = Order(raw);
  const float max = raw[order[0]];
  double sum = 0;
  for (float value : raw) sum += std::exp(Below(value, max));
  const auto logprob = [&](int32_t id) {
    return max == kNegativeInfinity ? max : static_cast<float>(Below(raw[id], max) - std::log(sum));
  };
  out->logprob = logprob(out->token);
  for (int32_t i = 0; i < row.n_logprobs; ++i) {
    const bool exists = i < static_cast<int32_t>(order.size());
    out->top_ids[i] = exists ? order[i] : -1;
    out->top_logprobs[i] = exists ? logprob(order[i]) : kNegativeInfinity;
  }
}

bool IsAllowed(const SampleRow& row, size_t id) {
  return row.allowed.empty() || (row.allowed[id / 32] >> (id % 32) & 1) != 0;
}

void Penalize(const SampleRow& row, std::vector<float>* values) {
  const SampleParams& params = row.params;
  const auto in_range = [&](int32_t id) {
    return id >= 0 && id < static_cast<int32_t>(values->size());
  };
  for (size_t i = 0; i < row.bias_ids.size(); ++i) {
    if (in_range(row.bias_ids[i])) (*values)[row.bias_ids[i]] += row.bias_values[i];
  }
  for (int32_t id : row.forbidden) {
    if (in_range(id)) (*values)[id] = kNegativeInfinity;
  }
  for (size_t id = 0; id < values->size(); ++id) {
    if (!IsAllowed(row, id)) (*values)[id] = kNegativeInfinity;
  }
  for (const TokenCount& count : row.counts) {
    if (!in_range(count.id)) continue;
    float& value = (*values)[count.id];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    value -= params.frequency_penalty * static_cast<float>(count.n_generated);
    if (count.n_generated > 0) value -= params.presence_penalty;
  }
}

// How many tokens top-n-sigma keeps.
size_t CountNearMax(const std::vector<float>& values, float max, float n_sigma) {
  std::vector<double> finite;
  for (float value : values) {
    if (std::isfinite(Below(value, max))) finite.push_back(Below(value, max));
  }
  const double n = static_cast<double>(finite.size());
  const double mean = std::accumulate(finite.begin(), finite.end(), 0.0) / n;
  double squares = 0;
  for (double value : finite) squares += (value - mean) * (value - mean);
  const double least = -static_cast<double>(n_sigma) * std::sqrt(squares / n);
  return static_cast<size_t>(std::count_if(finite.begin(), finite.end(),
                                           [least](double value) { return value >= least; }));
}

int32_t Draw(const std::vector<float>& values, const SampleRow& row) {
  const SampleParams& params = row.params;
  const auto largest = std::max_element(values.begin(), values.end());
  const float max = *largest;
  if (max == kNegativeInfinity) {
    size_t id = 0;
    while (id < values.size() && !IsAllowed(row, id)) ++id;
    return id < values.size() ? static_cast<int32_t>(id) : 0;
  }
  if (params.temperature <= 0) return static_cast<int32_t>(largest - values.begin());
  const std::vector<int32_t> order = Order(values);

  const auto exponent = [&](size_t i) {
    return Below(values[order[i]], max) / static_cast<double>(params.temperature);
  };
  size_t n_kept = order.size();
  if (params.top_n_sigma > 0) n_kept = CountNearMax(values, max, params.top_n_sigma);
  if (params.top_k > 0) n_kept = std::min(n_kept, static_cast<size_t>(params.top_k));
  const auto mass = [&](size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += std::exp(exponent(i));
    return sum;
  };
  if (params.top_p < 1) {
    const double wanted = static_cast<double>(params.top_p) * mass(n_kept);
    size_t n = 0;
    double sum = 0;
    do sum += std::exp(exponent(n++));
    while (n < n_kept && sum < wanted);
    n_kept = n;
  }
  if (params.min_p > 0) {
    const double least = std::log(static_cast<double>(params.min_p));
    while (n_kept > 1 && exponent(n_kept - 1) < least) --n_kept;
  }
  const double target = UniformDraw(row.seed, row.position) * mass(n_kept);
  double sum = 0;
  int32_t last_possible = order[0];
  for (size_t i = 0; i < n_kept; ++i) {
    const double weight = std::exp(exponent(i));
    if (weight > 0) last_possible = order[i];
    sum += weight;
    if (sum > target) break;
  }
  return last_possible;
}

}  // namespace

void ReferenceSampleRow(std::span<const float> logits, const SampleRow& row, SampledToken* out) {
  std::vector<float> values(logits.begin(), logits.end());
  for (float& value : values) {
    if (std::isnan(value)) value = kNegativeInfinity;
  }
  if (row.given_token >= 0) {
    SC_CHECK(row.given_token < static_cast<int32_t>(values.size()));
    out->token = row.given_token;
  } else {
    std::vector<float> penalized = values;
    Penalize(row, &penalized);
    for (float& value : penalized) {  // inf - inf and 0 * inf are NaN
      if (std::isnan(value)) value = kNegativeInfinity;
    }
    out->token = Draw(penalized, row);
  }
  if (row.n_logprobs >= 0) LogProbs(values, row, out);
}

}  // namespace stagecoach::kernels
