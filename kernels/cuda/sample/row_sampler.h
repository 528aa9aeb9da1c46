// Order statistics of one row of logits, for a CTA of kSampleThreads threads.
//
// The order is by descending value, then by ascending id. The row is never sorted completely. A
// histogram over the distance from the largest logit locates the bin of the wanted token, and only
// the tokens of that bin are compared one by one. Weights are summed as fixed-point integers, so
// that no sum depends on the order in which threads run.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/numbers.h"
#include "kernels/cuda/device/warp.h"
#include "kernels/cuda/sample/sample.h"

namespace stagecoach::kernels::cuda {

inline constexpr int kSampleThreads = 1024;
inline constexpr int kBins = 2 * kSampleThreads;
inline constexpr int kMaxListed = kMaxTop;  // tokens that are compared one by one
// Tokens with a weight below exp(-40) of the largest share the last bin. Their fixed-point weight
// is zero.
inline constexpr float kBinnedRange = 40;
inline constexpr float kOneWeight = 0x1p40f;

struct Bins {
  uint32_t counts[kBins];
  unsigned long long masses[kBins];
};

// Sort key of a token; a smaller key comes first. Descending value, then ascending id.
using Place = unsigned long long;

__device__ __forceinline__ uint32_t FallingKey(float value) {
  const uint32_t bits = __float_as_uint(value);
  const uint32_t rising = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return ~rising;
}
__device__ __forceinline__ float ValueOf(Place place) {
  const uint32_t rising = ~static_cast<uint32_t>(place >> 32);
  return __uint_as_float((rising & 0x80000000u) != 0 ? rising & 0x7fffffffu : ~rising);
}
// -0 equals 0.
__device__ __forceinline__ Place PlaceOf(float value, int32_t id) {
  return (static_cast<Place>(FallingKey(value + 0.0f)) << 32) | static_cast<uint32_t>(id);
}

struct SampleShared {
  Bins bins;     // of all tokens
  Bins refined;  // of the tokens in one bin
  Place listed[kMaxListed];
  uint32_t n_listed;
  // Results of one thread that all threads read.
  int32_t bin;
  uint32_t count_before;
  unsigned long long mass_before;
  Place place, range[2];
  unsigned long long mass;
  float floats[3][kWarpThreads];
  int32_t ids[kWarpThreads];
  unsigned long long masses[kWarpThreads];
  double doubles[kWarpThreads];
  uint32_t counts[kWarpThreads];
};

// A token, and the mass of all tokens up to and including it.
struct Found {
  Place place;
  unsigned long long mass;
};

class RowSampler {
 public:
  __device__ RowSampler(float* logits, int32_t vocab, SampleShared* shared)
      : logits_(logits), vocab_(vocab), shared_(*shared) {
    // Valid defaults, in case no thread finds a bin or a token.
    if (threadIdx.x == 0) {
      shared_.bin = 0;
      shared_.place = 0;
    }
  }

  // From here on all other tokens count as -inf; null: every token is allowed.
  __device__ void Allow(const uint32_t* allowed) { allowed_ = allowed; }

  // Scans the row, with NaN as -inf: finds the largest value, the lowest id that has it, and the
  // smallest finite value. If all values are -inf, the id is the first allowed one, else 0.
  __device__ void Scan() {
    float max = Minus(), least = -Minus();
    int32_t id = INT32_MAX;
    ForEach([&](int32_t i, float value) {
      if (value > max) {
        max = value;
        id = i;
      }
      if (value != Minus()) least = fminf(least, value);
    });
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
      Better(__shfl_xor_sync(kAllLanes, max, mask), __shfl_xor_sync(kAllLanes, id, mask), &max,
             &id);
      least = fminf(least, __shfl_xor_sync(kAllLanes, least, mask));
    }
    __syncthreads();  // other threads may still read shared_
    const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
    if (lane == 0) {
      shared_.floats[0][warp] = max;
      shared_.floats[1][warp] = least;
      shared_.ids[warp] = id;
    }
    __syncthreads();
    max_ = shared_.floats[0][0];
    least_ = shared_.floats[1][0];
    int32_t best = shared_.ids[0];
    for (int w = 1; w < kSampleThreads / kWarpThreads; ++w) {
      Better(shared_.floats[0][w], shared_.ids[w], &max_, &best);
      least_ = fminf(least_, shared_.floats[1][w]);
    }
    __syncthreads();
    max_id_ = best == INT32_MAX ? FirstAllowed() : best;
  }
  __device__ float largest() const { return max_; }
  __device__ int32_t largest_id() const { return max_id_; }

  // log(sum of exp(value - max)). Values equal to an infinite maximum count as exp(0). Call after
  // Scan.
  __device__ float LogSum() {
    return logf(Sum<float>([&](int32_t, float value) { return expf(Below(value)); }));
  }
  // value - max
  __device__ float Below(float value) const { return value == max_ ? 0.0f : value - max_; }

  // Builds the histogram of exp(value / temperature). Call after Scan.
  __device__ void Weigh(float temperature) {
    infinite_ = max_ == -Minus();
    // Kept finite, because 0 * infinity would be NaN for the largest value.
    inverse_temperature_ = fminf(1.0f / temperature, __uint_as_float(0x7f7fffffu));
    const float spread = infinite_ ? 0.0f : max_ - least_;
    const float range = fminf(spread, kBinnedRange * temperature);
    bins_per_unit_ = range > 1e-30f ? static_cast<float>(kBins - 1) / range : 1.0f;
    Clear(&shared_.bins);
    ForEach([&](int32_t, float value) {
      const int bin = BinOf(value);
      atomicAdd(&shared_.bins.counts[bin], 1u);
      const unsigned long long weight = WeightOf(value);
      if (weight != 0) atomicAdd(&shared_.bins.masses[bin], weight);
    });
    __syncthreads();
  }
  __device__ unsigned long long WeightOf(float value) const {
    const float weight =
        infinite_ ? (value == max_ ? 1.0f : 0.0f) : expf((value - max_) * inverse_temperature_);
    return static_cast<unsigned long long>(weight * kOneWeight);
  }
  __device__ unsigned long long TotalMass() {
    unsigned long long sum = 0;
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kSampleThreads) {
      sum += shared_.bins.masses[b];
    }
    sum = BlockSum(sum, shared_.masses);
    __syncthreads();
    return sum;
  }
  // Mass of the tokens up to `last` for which keep(value) is true.
  template <typename Keep>
  __device__ unsigned long long MassOf(Place last, const Keep& keep) {
    return Sum<unsigned long long>([&](int32_t i, float value) {
      return PlaceOf(value, i) <= last && keep(value) ? WeightOf(value) : 0;
    });
  }
  // Sum of term(id, value) over all tokens. The value is -inf for a NaN and for a token that is not
  // allowed. T: float, double or unsigned long long. The order of the additions is fixed.
  template <typename T, typename Term>
  __device__ T Sum(const Term& term) {
    T sum = 0;
    ForEach([&](int32_t i, float value) { sum += term(i, value); });
    sum = BlockSum(sum, Scratch(T{}));
    __syncthreads();
    return sum;
  }

  // The n-th token, counted from 1. Call after Weigh; n <= vocab.
  __device__ Found ByCount(uint32_t n) { return Find</*kByCount=*/true>(n); }
  // The first token at which the cumulative mass reaches `mass`; 1 <= mass <= TotalMass.
  __device__ Found ByMass(unsigned long long mass) { return Find</*kByCount=*/false>(mass); }

  // Calls each(rank, id, value) for the first n tokens, n <= kMaxTop. Call after Weigh.
  template <typename Each>
  __device__ void ForFirst(uint32_t n, const Each& each) {
    const Place last = ByCount(n).place;
    List([last](float, Place place) { return place <= last; });
    for (uint32_t i = threadIdx.x; i < n; i += kSampleThreads) {
      uint32_t rank = 0;
      for (uint32_t j = 0; j < n; ++j) rank += shared_.listed[j] < shared_.listed[i] ? 1u : 0u;
      each(rank, static_cast<int32_t>(shared_.listed[i] & 0xffffffffu), ValueOf(shared_.listed[i]));
    }
    __syncthreads();
  }

 private:
  __device__ float* Scratch(float) { return shared_.floats[2]; }
  __device__ double* Scratch(double) { return shared_.doubles; }
  __device__ unsigned long long* Scratch(unsigned long long) { return shared_.masses; }

  __device__ static float Minus() { return __uint_as_float(0xff800000u); }
  __device__ static void Better(float value, int32_t id, float* max, int32_t* max_id) {
    if (value > *max || (value == *max && id < *max_id)) {
      *max = value;
      *max_id = id;
    }
  }

  __device__ int32_t FirstAllowed() {
    if (allowed_ == nullptr) return 0;
    if (threadIdx.x == 0) shared_.bin = INT32_MAX;
    __syncthreads();
    const int32_t n_words = (vocab_ + 31) / 32;
    for (int32_t w = static_cast<int32_t>(threadIdx.x); w < n_words; w += kSampleThreads) {
      if (allowed_[w] == 0) continue;
      atomicMin(&shared_.bin, 32 * w + __ffs(static_cast<int>(allowed_[w])) - 1);
      break;
    }
    __syncthreads();
    const int32_t first = shared_.bin;
    __syncthreads();
    return first < vocab_ ? first : 0;
  }

  // Bit i: whether token first + i is allowed, up to the end of its mask word.
  __device__ __forceinline__ uint32_t AllowedBits(int32_t first) const {
    return allowed_ == nullptr ? ~0u : allowed_[first / 32] >> (first % 32);
  }

  // Calls each(id, value) for this thread's tokens, in ascending id order.
  template <typename Each>
  __device__ __forceinline__ void ForEach(const Each& each) const {
    const auto one = [&](int32_t i, float value, uint32_t allowed) {
      each(i, value == value && (allowed & 1) != 0 ? value : Minus());
    };
    const int32_t n_wide = vocab_ % 4 == 0 ? vocab_ / 4 : 0;
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < n_wide; i += kSampleThreads) {
      float values[4];
      LoadFloats<4>(logits_ + 4 * i, values);
      const uint32_t allowed = AllowedBits(4 * i);
#pragma unroll
      for (int e = 0; e < 4; ++e) one(4 * i + e, values[e], allowed >> e);
    }
    for (int32_t i = 4 * n_wide + static_cast<int32_t>(threadIdx.x); i < vocab_;
         i += kSampleThreads) {
      one(i, logits_[i], AllowedBits(i));
    }
  }

  __device__ __forceinline__ int BinOf(float value) const {
    if (infinite_) return value == max_ ? 0 : kBins - 1;
    const float bin = (max_ - value) * bins_per_unit_;
    return bin < static_cast<float>(kBins - 1) ? static_cast<int>(bin) : kBins - 1;
  }

  __device__ void Clear(Bins* bins) {
    for (int b = static_cast<int>(threadIdx.x); b < kBins; b += kSampleThreads) {
      bins->counts[b] = 0;
      bins->masses[b] = 0;
    }
    __syncthreads();
  }

  // Finds the bin in which the cumulative count or mass reaches `wanted`. `count` and `mass` are
  // the totals before the first bin. Writes shared_.bin and the totals before that bin.
  template <bool kByCount>
  __device__ void FindBin(const Bins& bins, unsigned long long wanted, uint32_t count,
                          unsigned long long mass) {
    const int lane = threadIdx.x % kWarpThreads, warp = threadIdx.x / kWarpThreads;
    const int first = 2 * static_cast<int>(threadIdx.x);
    const uint32_t my_count = bins.counts[first] + bins.counts[first + 1];
    const unsigned long long my_mass = bins.masses[first] + bins.masses[first + 1];
    uint32_t counts = my_count;
    unsigned long long masses = my_mass;
#pragma unroll
    for (unsigned delta = 1; delta < kWarpThreads; delta *= 2) {
      const uint32_t count_below = __shfl_up_sync(kAllLanes, counts, delta);
      const unsigned long long mass_below = __shfl_up_sync(kAllLanes, masses, delta);
      if (lane >= static_cast<int>(delta)) {
        counts += count_below;
        masses += mass_below;
      }
    }
    if (lane == kWarpThreads - 1) {
      shared_.counts[warp] = counts;
      shared_.masses[warp] = masses;
    }
    __syncthreads();
    for (int w = 0; w < warp; ++w) {
      count += shared_.counts[w];
      mass += shared_.masses[w];
    }
    count += counts - my_count;
    mass += masses - my_mass;
    for (int b = first; b < first + 2; ++b) {
      const unsigned long long before = kByCount ? count : mass;
      const unsigned long long in_bin = kByCount ? bins.counts[b] : bins.masses[b];
      if (before < wanted && wanted <= before + in_bin) {
        shared_.bin = b;
        shared_.count_before = count;
        shared_.mass_before = mass;
      }
      count += bins.counts[b];
      mass += bins.masses[b];
    }
    __syncthreads();
  }

  // Writes the keys of the tokens for which wanted(value, place) is true to shared_.listed.
  // REQUIRES: at most kMaxListed of them.
  template <typename Wanted>
  __device__ void List(const Wanted& wanted) {
    if (threadIdx.x == 0) shared_.n_listed = 0;
    __syncthreads();
    ForEach([&](int32_t i, float value) {
      const Place place = PlaceOf(value, i);
      if (wanted(value, place)) shared_.listed[atomicAdd(&shared_.n_listed, 1u)] = place;
    });
    __syncthreads();
  }

  template <bool kByCount>
  __device__ Found Find(unsigned long long wanted) {
    FindBin<kByCount>(shared_.bins, wanted, 0, 0);
    const int wanted_bin = shared_.bin;
    uint32_t count = shared_.count_before;
    unsigned long long mass = shared_.mass_before;
    if (shared_.bins.counts[wanted_bin] <= kMaxListed) {
      List([&](float value, Place) { return BinOf(value) == wanted_bin; });
    } else {
      ListRefined<kByCount>(wanted_bin, wanted, &count, &mass);
    }
    const uint32_t n_listed = shared_.n_listed;
    for (uint32_t i = threadIdx.x; i < n_listed; i += kSampleThreads) {
      const Place mine = shared_.listed[i];
      uint32_t my_count = count;
      unsigned long long my_mass = mass;
      for (uint32_t j = 0; j < n_listed; ++j) {
        if (shared_.listed[j] >= mine) continue;
        ++my_count;
        my_mass += WeightOf(ValueOf(shared_.listed[j]));
      }
      const unsigned long long weight = WeightOf(ValueOf(mine));
      const unsigned long long before = kByCount ? my_count : my_mass;
      const unsigned long long mine_only = kByCount ? 1 : weight;
      if (before < wanted && wanted <= before + mine_only) {
        shared_.place = mine;
        shared_.mass = my_mass + weight;
      }
    }
    __syncthreads();
    const Found found{shared_.place, shared_.mass};
    __syncthreads();
    return found;
  }

  // List for a bin with too many tokens. Divides the bin into equal sub-bins, repeatedly, until few
  // tokens remain around the wanted one. count, mass: totals before the bin; on return, before the
  // listed tokens.
  template <bool kByCount>
  __device__ void ListRefined(int bin, unsigned long long wanted, uint32_t* count,
                              unsigned long long* mass) {
    Place first, last;
    RangeOf(bin, &first, &last);
    uint32_t n;
    do {
      int shift = 0;
      while (((last - first) >> shift) >= kBins) ++shift;
      Clear(&shared_.refined);
      ForEach([&](int32_t i, float value) {
        const Place place = PlaceOf(value, i);
        if (place < first || place > last) return;
        const auto part = static_cast<uint32_t>((place - first) >> shift);
        atomicAdd(&shared_.refined.counts[part], 1u);
        const unsigned long long weight = WeightOf(value);
        if (weight != 0) atomicAdd(&shared_.refined.masses[part], weight);
      });
      __syncthreads();
      FindBin<kByCount>(shared_.refined, wanted, *count, *mass);
      const auto part = static_cast<unsigned>(shared_.bin);
      n = shared_.refined.counts[part];
      *count = shared_.count_before;
      *mass = shared_.mass_before;
      first += static_cast<Place>(part) << shift;
      last = min(last, first + ((Place{1} << shift) - 1));
      __syncthreads();
    } while (n > kMaxListed);
    List([&](float, Place place) { return place >= first && place <= last; });
  }

  // The smallest and the largest sort key in a bin.
  __device__ void RangeOf(int bin, Place* first, Place* last) {
    if (threadIdx.x == 0) {
      shared_.range[0] = ~Place{0};
      shared_.range[1] = 0;
    }
    __syncthreads();
    Place least = ~Place{0}, most = 0;
    ForEach([&](int32_t i, float value) {
      if (BinOf(value) != bin) return;
      const Place place = PlaceOf(value, i);
      least = min(least, place);
      most = max(most, place);
    });
    if (least <= most) {
      atomicMin(&shared_.range[0], least);
      atomicMax(&shared_.range[1], most);
    }
    __syncthreads();
    *first = shared_.range[0];
    *last = shared_.range[1];
    __syncthreads();
  }

  float* const logits_;
  const int32_t vocab_;
  SampleShared& shared_;
  const uint32_t* allowed_ = nullptr;
  float max_ = 0, least_ = 0;
  int32_t max_id_ = 0;
  float inverse_temperature_ = 1, bins_per_unit_ = 1;
  bool infinite_ = false;
};

}  // namespace stagecoach::kernels::cuda
