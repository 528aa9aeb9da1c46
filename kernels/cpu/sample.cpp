#include "kernels/cpu/sample.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/status.h"
#include "kernels/cpu/ranked_weights.h"
#include "kernels/philox.h"

namespace stagecoach::kernels {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Index of the first value equal to `max`; 0 if no value is.
int32_t FirstOf(const float* values, size_t vocab, float max) {
  const float* const at = std::find(values, values + vocab, max);
  return at == values + vocab ? 0 : static_cast<int32_t>(at - values);
}

// Id of the n-th set bit, counted from 0; 0 if there is none or it is outside the vocabulary.
int32_t AllowedId(std::span<const uint32_t> allowed, size_t n, size_t vocab) {
  for (size_t w = 0; w < allowed.size(); ++w) {
    uint32_t word = allowed[w];
    const size_t n_set = static_cast<size_t>(std::popcount(word));
    if (n >= n_set) {
      n -= n_set;
      continue;
    }
    for (; n > 0; --n) word &= word - 1;
    const size_t id = w * 32 + static_cast<size_t>(std::countr_zero(word));
    return id < vocab ? static_cast<int32_t>(id) : 0;
  }
  return 0;
}

// Applies bias, forbidden ids and penalties. values: [vocab]
void Edit(const SampleRow& row, float* values, size_t vocab) {
  const SampleParams& params = row.params;
  const auto in_range = [vocab](int32_t id) { return static_cast<size_t>(id) < vocab; };
  for (size_t i = 0; i < row.bias_ids.size(); ++i) {
    if (in_range(row.bias_ids[i])) values[row.bias_ids[i]] += row.bias_values[i];
  }
  for (const int32_t id : row.forbidden) {
    if (in_range(id)) values[id] = -kInfinity;
  }
  for (const TokenCount& count : row.counts) {
    if (!in_range(count.id)) continue;
    float& value = values[count.id];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    value -= params.frequency_penalty * static_cast<float>(count.n_generated);
    if (count.n_generated > 0) value -= params.presence_penalty;
  }
}

// Returns the number of tokens that top-n-sigma keeps. values: [vocab] without NaN; max is finite.
size_t CountNearMax(const float* values, size_t vocab, float max, float n_sigma) {
  const auto below = [&](size_t i) {
    return static_cast<double>(values[i]) - static_cast<double>(max);
  };
  size_t n = 0;
  double sum = 0, squares = 0;
  for (size_t i = 0; i < vocab; ++i) {
    if (values[i] == -kInfinity) continue;
    sum += below(i);
    ++n;
  }
  const double mean = sum / static_cast<double>(n);
  for (size_t i = 0; i < vocab; ++i) {
    if (values[i] != -kInfinity) squares += (below(i) - mean) * (below(i) - mean);
  }
  const double least = -static_cast<double>(n_sigma) * std::sqrt(squares / static_cast<double>(n));
  size_t n_near = 0;
  for (size_t i = 0; i < vocab; ++i) n_near += below(i) >= least ? 1 : 0;
  return n_near;
}

// values: [vocab] without NaN, not all -inf. If the maximum is infinite, the values are
// overwritten. Returns the index of the drawn token.
int32_t Draw(const SampleRow& row, float* values, size_t vocab, float max,
             const SampleVector& vector, const RankedWeights::Memory& memory) {
  const SampleParams& params = row.params;
  if (max == kInfinity) {  // all finite values have probability 0
    std::transform(values, values + vocab, values,
                   [](float value) { return value == kInfinity ? 0.0f : -kInfinity; });
    max = 0;
  }
  RankedWeights ranked(values, vocab, max, static_cast<double>(params.temperature), vector, memory);
  size_t n_kept = vocab;
  if (params.top_n_sigma > 0) n_kept = CountNearMax(values, vocab, max, params.top_n_sigma);
  if (params.top_k > 0) n_kept = std::min(n_kept, static_cast<size_t>(params.top_k));
  if (params.top_p < 1) {
    n_kept =
        ranked.PrefixReaching(static_cast<double>(params.top_p) * ranked.MassOf(n_kept), n_kept);
  }
  if (params.min_p > 0) {
    const size_t likely = ranked.CountAtLeast(std::log(static_cast<double>(params.min_p)));
    n_kept = std::clamp<size_t>(likely, 1, n_kept);
  }
  return ranked.TokenAt(UniformDraw(row.seed, row.position) * ranked.MassOf(n_kept), n_kept);
}

// values: [vocab], the raw row without NaN.
void LogProbs(const SampleRow& row, const float* values, size_t vocab, float max,
              const SampleVector& vector, SampledToken* out) {
  const auto below = [max](float value) {
    return value == max ? 0.0 : static_cast<double>(value) - static_cast<double>(max);
  };
  double log_sum = 0;
  if (max == kInfinity) {
    log_sum = std::log(static_cast<double>(std::count(values, values + vocab, max)));
  } else if (max > -kInfinity) {
    log_sum = std::log(vector.sum_exp(values, vocab, max));
  }
  const auto logprob = [&](int32_t id) {
    return max == -kInfinity ? max : static_cast<float>(below(values[id]) - log_sum);
  };
  out->logprob = logprob(out->token);

  // Insertion into top_ids: most values are smaller than the smallest one kept.
  const size_t n_top = std::min(static_cast<size_t>(row.n_logprobs), vocab);
  size_t n = 0;
  for (size_t i = 0; i < vocab && n_top > 0; ++i) {
    if (n == n_top && !(values[i] > values[out->top_ids[n - 1]])) continue;
    size_t at = n < n_top ? n++ : n - 1;
    for (; at > 0 && values[i] > values[out->top_ids[at - 1]]; --at) {
      out->top_ids[at] = out->top_ids[at - 1];
    }
    out->top_ids[at] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < static_cast<size_t>(row.n_logprobs); ++i) {
    if (i >= n_top) out->top_ids[i] = -1;
    out->top_logprobs[i] = i < n_top ? logprob(out->top_ids[i]) : -kInfinity;
  }
}

struct RowMemory {
  float* values;  // [vocab]
  RankedWeights::Memory ranked;
};

void SampleOne(const float* logits, size_t vocab, const SampleRow& row, const SampleVector& vector,
               const RowMemory& memory, SampledToken* out) {
  const bool edited = !row.bias_ids.empty() || !row.forbidden.empty() || !row.allowed.empty() ||
                      !row.counts.empty();
  const bool drawn = row.given_token < 0;
  if (drawn && !edited && row.params.temperature <= 0 && row.n_logprobs < 0) {
    out->token = FirstOf(logits, vocab, vector.clean(logits, vocab, nullptr));
    return;
  }
  float* const values = memory.values;
  const float raw_max = vector.clean(logits, vocab, values);
  if (!drawn) {
    SC_CHECK(static_cast<size_t>(row.given_token) < vocab);
    out->token = row.given_token;
  } else {
    float max = raw_max;
    size_t n = vocab;
    if (edited) {
      Edit(row, values, vocab);
      // With a mask, keep only the allowed values, so that the following passes are shorter.
      if (!row.allowed.empty()) {
        SC_CHECK(row.allowed.size() * 32 >= vocab);
        n = vector.keep(row.allowed.data(), values, vocab);
      }
      max = vector.clean(values, n, values);  // inf - inf and 0 * inf are NaN
    }
    int32_t at = 0;  // result if all values are -inf
    if (max > -kInfinity) {
      at = row.params.temperature <= 0 ? FirstOf(values, n, max)
                                       : Draw(row, values, n, max, vector, memory.ranked);
    }
    out->token = row.allowed.empty() ? at : AllowedId(row.allowed, static_cast<size_t>(at), vocab);
  }
  if (row.n_logprobs >= 0) {
    if (drawn) vector.clean(logits, vocab, values);
    LogProbs(row, values, vocab, raw_max, vector, out);
  }
}

}  // namespace

absl::Status CpuSample(const SampleArgs& args, const SampleVector& vector, CpuContext& context) {
  SC_CHECK(args.vocab > 0 && args.rows.size() == args.out.size());
  const size_t vocab = static_cast<size_t>(args.vocab);
  const size_t padded = (vocab + 31) / 32 * 32;
  const size_t per_thread =
      padded * (sizeof(float) + RankedWeights::kBytesPerToken) / sizeof(float);
  SC_ASSIGN_OR_RETURN(
      float* const scratch,
      context.scratch->Floats(static_cast<size_t>(context.pool->n_threads()) * per_thread));
  context.pool->Run(args.rows.size(), [&](size_t r, int thread) {
    float* const values = scratch + static_cast<size_t>(thread) * per_thread;
    double* const weights = reinterpret_cast<double*>(values + padded);
    int32_t* const ids = reinterpret_cast<int32_t*>(weights + padded);
    uint16_t* const bins = reinterpret_cast<uint16_t*>(ids + padded);
    SampleOne(args.logits + r * vocab, vocab, args.rows[r], vector,
              {.values = values, .ranked = {.weights = weights, .ids = ids, .bins = bins}},
              &args.out[r]);
  });
  return absl::OkStatus();
}

}  // namespace stagecoach::kernels
