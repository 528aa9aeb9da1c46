// One CTA per row.
#include "kernels/cuda/sample/sample.h"

#include "kernels/cuda/device/shared_memory.h"
#include "kernels/cuda/sample/row_sampler.h"
#include "kernels/philox.h"

namespace stagecoach::kernels::cuda {
namespace {

// Applies bias, forbidden ids and penalties in place. `originals` receives the previous logits.
__device__ void Edit(const SampleRows& p, const DeviceSampleRow& row, float* logits) {
  const SampleParams& params = row.params;
  const auto in_range = [&](int32_t id) { return id >= 0 && id < p.vocab; };
  const int32_t first = static_cast<int32_t>(threadIdx.x);
  float* const of_forbidden = p.originals + p.n_counts;
  float* const of_bias = of_forbidden + p.n_forbidden;
  for (int32_t i = row.first_count + first; i < row.first_count + row.n_counts;
       i += kSampleThreads) {
    if (in_range(p.counts[i].id)) p.originals[i] = logits[p.counts[i].id];
  }
  for (int32_t i = row.first_forbidden + first; i < row.first_forbidden + row.n_forbidden;
       i += kSampleThreads) {
    if (in_range(p.forbidden[i])) of_forbidden[i] = logits[p.forbidden[i]];
  }
  for (int32_t i = row.first_bias + first; i < row.first_bias + row.n_bias; i += kSampleThreads) {
    if (in_range(p.bias_ids[i])) of_bias[i] = logits[p.bias_ids[i]];
  }
  __syncthreads();
  for (int32_t i = row.first_bias + first; i < row.first_bias + row.n_bias; i += kSampleThreads) {
    if (in_range(p.bias_ids[i])) atomicAdd(&logits[p.bias_ids[i]], p.bias_values[i]);
  }
  __syncthreads();
  for (int32_t i = row.first_forbidden + first; i < row.first_forbidden + row.n_forbidden;
       i += kSampleThreads) {
    if (in_range(p.forbidden[i])) logits[p.forbidden[i]] = __uint_as_float(0xff800000u);
  }
  __syncthreads();
  for (int32_t i = row.first_count + first; i < row.first_count + row.n_counts;
       i += kSampleThreads) {
    const TokenCount count = p.counts[i];
    if (!in_range(count.id)) continue;
    float value = logits[count.id];
    value = value > 0 ? value / params.repetition_penalty : value * params.repetition_penalty;
    // No fused multiply-add: the other devices do not fuse it either.
    value -= __fmul_rn(params.frequency_penalty, static_cast<float>(count.n_generated));
    if (count.n_generated > 0) value -= params.presence_penalty;
    logits[count.id] = value;
  }
  __syncthreads();
}

// Writes the logit that `token` had before Edit to *value in shared memory.
__device__ void FindOriginal(const SampleRows& p, const DeviceSampleRow& row, const float* logits,
                             int32_t token, float* value) {
  const int32_t first = static_cast<int32_t>(threadIdx.x);
  const float* const of_forbidden = p.originals + p.n_counts;
  const float* const of_bias = of_forbidden + p.n_forbidden;
  if (threadIdx.x == 0) *value = logits[token];
  __syncthreads();
  for (int32_t i = row.first_count + first; i < row.first_count + row.n_counts;
       i += kSampleThreads) {
    if (p.counts[i].id == token) *value = p.originals[i];
  }
  for (int32_t i = row.first_forbidden + first; i < row.first_forbidden + row.n_forbidden;
       i += kSampleThreads) {
    if (p.forbidden[i] == token) *value = of_forbidden[i];
  }
  for (int32_t i = row.first_bias + first; i < row.first_bias + row.n_bias; i += kSampleThreads) {
    if (p.bias_ids[i] == token) *value = of_bias[i];
  }
  __syncthreads();
}

// How many tokens top-n-sigma keeps.
__device__ uint32_t CountNearMax(float n_sigma, RowSampler& sampler) {
  // Exact, unlike sampler.Below. The largest itself may be infinite.
  const auto below = [max = sampler.largest()](float value) {
    return value == max ? 0.0 : static_cast<double>(value) - static_cast<double>(max);
  };
  const double minus_infinity = -static_cast<double>(__uint_as_float(0x7f800000u));
  const double n = sampler.Sum<double>(
      [&](int32_t, float value) { return below(value) > minus_infinity ? 1.0 : 0.0; });
  const double mean = sampler.Sum<double>([&](int32_t, float value) {
    return below(value) > minus_infinity ? below(value) : 0.0;
  }) / n;
  const double squares = sampler.Sum<double>([&](int32_t, float value) {
    const double from_mean = below(value) - mean;
    return below(value) > minus_infinity ? from_mean * from_mean : 0.0;
  });
  const double least = -static_cast<double>(n_sigma) * sqrt(squares / n);
  return static_cast<uint32_t>(sampler.Sum<unsigned long long>(
      [&](int32_t, float value) { return below(value) >= least ? 1ull : 0ull; }));
}

__device__ int32_t Draw(const DeviceSampleRow& row, int32_t vocab, RowSampler& sampler) {
  const SampleParams& params = row.params;
  sampler.Weigh(params.temperature);
  unsigned long long mass = sampler.TotalMass();
  Place last = ~Place{0};
  auto n_kept = static_cast<uint32_t>(vocab);
  if (params.top_n_sigma > 0) n_kept = CountNearMax(params.top_n_sigma, sampler);
  if (params.top_k > 0) n_kept = min(n_kept, static_cast<uint32_t>(params.top_k));
  if (n_kept < static_cast<uint32_t>(vocab)) {
    const Found found = sampler.ByCount(n_kept);
    last = found.place;
    mass = found.mass;
  }
  if (params.top_p < 1) {
    const double share = static_cast<double>(params.top_p) * static_cast<double>(mass);
    const auto wanted = static_cast<unsigned long long>(ceil(share));
    const Found found = sampler.ByMass(min(max(wanted, 1ull), mass));
    last = found.place;
    mass = found.mass;
  }
  if (params.min_p > 0) {
    const double least = log(static_cast<double>(params.min_p));
    mass = sampler.MassOf(last, [&](float value) {
      return static_cast<double>(sampler.Below(value)) / static_cast<double>(params.temperature) >=
             least;
    });
  }
  const double target = UniformDraw(row.seed, row.position) * static_cast<double>(mass);
  const auto before = static_cast<unsigned long long>(target);
  const Found found = sampler.ByMass(min(before + 1, mass));
  return static_cast<int32_t>(found.place & 0xffffffffu);
}

__global__ void __launch_bounds__(kSampleThreads) SampleKernel(const SampleRows p) {
  SampleShared& shared = *reinterpret_cast<SampleShared*>(DynamicShared());
  // Raw words, because a constructor cannot run in shared memory.
  constexpr int kWords = sizeof(DeviceSampleRow) / sizeof(uint64_t);
  static_assert(alignof(DeviceSampleRow) == alignof(uint64_t));
  __shared__ uint64_t row_words[kWords];
  __shared__ float raw;
  const DeviceSampleRow& row = *reinterpret_cast<const DeviceSampleRow*>(row_words);
  LetNextStart();
  WaitForPrevious();
  if (threadIdx.x < kWords) {
    row_words[threadIdx.x] = reinterpret_cast<const uint64_t*>(p.rows + blockIdx.x)[threadIdx.x];
  }
  __syncthreads();
  float* const logits = p.logits + int64_t{blockIdx.x} * p.vocab;
  RowSampler sampler(logits, p.vocab, &shared);
  const bool with_logprobs = row.n_logprobs >= 0;
  const bool edited = row.n_counts + row.n_forbidden + row.n_bias > 0;
  const bool changed = row.given_token < 0 && (edited || row.allowed != nullptr);
  if (with_logprobs || !changed) sampler.Scan();

  const float raw_max = sampler.largest();
  const float minus_infinity = __uint_as_float(0xff800000u);
  const float log_sum = with_logprobs && raw_max != minus_infinity ? sampler.LogSum() : 0.0f;
  const auto logprob = [&](float value) {
    if (raw_max == minus_infinity || value != value) return minus_infinity;
    return (value == raw_max ? 0.0f : value - raw_max) - log_sum;
  };
  if (row.n_logprobs > 0) {
    SampledToken* const out = row.out;
    const int32_t n = min(row.n_logprobs, p.vocab);
    sampler.Weigh(1.0f);
    sampler.ForFirst(static_cast<uint32_t>(n), [&](uint32_t rank, int32_t id, float value) {
      out->top_ids[rank] = id;
      out->top_logprobs[rank] = logprob(value);
    });
    for (int32_t i = n + static_cast<int32_t>(threadIdx.x); i < row.n_logprobs;
         i += kSampleThreads) {
      out->top_ids[i] = -1;
      out->top_logprobs[i] = minus_infinity;
    }
  }

  int32_t token = row.given_token;
  if (token < 0) {
    if (edited) Edit(p, row, logits);
    if (changed) {
      sampler.Allow(row.allowed);
      sampler.Scan();
    }
    token = row.params.temperature <= 0 || sampler.largest() == minus_infinity
                ? sampler.largest_id()
                : Draw(row, p.vocab, sampler);
  }
  if (with_logprobs) {
    if (edited && row.given_token < 0) {
      FindOriginal(p, row, logits, token, &raw);
    } else if (threadIdx.x == 0) {
      raw = logits[token];
    }
  }
  if (threadIdx.x != 0) return;
  row.out->token = token;
  if (with_logprobs) row.out->logprob = logprob(raw);
  if (p.sampled != nullptr && row.given_token < 0 && row.slot >= 0) p.sampled[row.slot] = token;
}

}  // namespace

cudaError_t Sample(const Stream& stream, const SampleRows& rows) {
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(rows.n_rows)),
                          .block = kSampleThreads,
                          .shared_bytes = sizeof(SampleShared)};
  return Launch<&SampleKernel>(stream, shape, rows);
}

}  // namespace stagecoach::kernels::cuda
