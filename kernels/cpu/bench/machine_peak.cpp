#include "kernels/cpu/bench/machine_peak.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/bench/machine_peak.cpp"
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>

#include <algorithm>
#include <ctime>
#include <vector>

#include "common/check.h"
#include "kernels/cpu/cpu_memory.h"
#include "kernels/cpu/cpu_target.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Returns the number of multiply-adds. Writing `sink` prevents dead-code elimination.
double MultiplyAdds(size_t n_rounds, float* sink) {
  const hn::CappedTag<float, 16> d;
  using V = hn::Vec<decltype(d)>;
  const V a = hn::Set(d, 0.999f), b = hn::Set(d, 0.001f);
  // Different initial values, so that the compiler cannot merge the chains.
  V s0 = b, s1 = hn::Add(s0, b), s2 = hn::Add(s1, b), s3 = hn::Add(s2, b), s4 = hn::Add(s3, b);
  V s5 = hn::Add(s4, b), s6 = hn::Add(s5, b), s7 = hn::Add(s6, b), s8 = hn::Add(s7, b);
  V s9 = hn::Add(s8, b);
  for (size_t i = 0; i < n_rounds; ++i) {
    s0 = hn::MulAdd(s0, a, b), s1 = hn::MulAdd(s1, a, b), s2 = hn::MulAdd(s2, a, b);
    s3 = hn::MulAdd(s3, a, b), s4 = hn::MulAdd(s4, a, b), s5 = hn::MulAdd(s5, a, b);
    s6 = hn::MulAdd(s6, a, b), s7 = hn::MulAdd(s7, a, b), s8 = hn::MulAdd(s8, a, b);
    s9 = hn::MulAdd(s9, a, b);
  }
  const V sum = hn::Add(hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)),
                        hn::Add(hn::Add(s4, s5), hn::Add(hn::Add(s6, s7), hn::Add(s8, s9))));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 10.0 * static_cast<double>(n_rounds * hn::Lanes(d));
}

// Four distant streams, which is faster than one.
uint64_t SumWords(const uint64_t* words, size_t n) {
  const hn::CappedTag<uint64_t, 8> d;
  const size_t lanes = hn::Lanes(d), quarter = n / 4;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (size_t i = 0; i + lanes <= quarter; i += lanes) {
    s0 = hn::Add(s0, hn::Load(d, words + i));
    s1 = hn::Add(s1, hn::Load(d, words + i + quarter));
    s2 = hn::Add(s2, hn::Load(d, words + i + 2 * quarter));
    s3 = hn::Add(s3, hn::Load(d, words + i + 3 * quarter));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {
namespace {

HWY_EXPORT(MultiplyAdds);
HWY_EXPORT(SumWords);

bool is_cpu_time = false;

double SecondsOf(const auto& work) {
  const double start = BenchSeconds();
  work();
  return BenchSeconds() - start;
}

}  // namespace

void UseCpuTime() { is_cpu_time = true; }

double BenchSeconds() {
  timespec now;
  clock_gettime(is_cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double ReadOnce(ThreadPool& pool) {
  constexpr size_t kBytes = kReadBytes, kPiece = size_t{1} << 20;
  static const Buffer buffer = [] {
    auto allocated = AllocateCpu(kBytes);
    SC_CHECK(allocated.ok());
    std::fill_n(allocated->As<uint64_t>(), kBytes / 8, 1);
    return *std::move(allocated);
  }();
  std::vector<uint64_t> sums(kBytes / kPiece);
  const double seconds = SecondsOf([&] {
    pool.Run(sums.size(), [&](size_t i, int) {
      sums[i] =
          HWY_DYNAMIC_DISPATCH(SumWords)(buffer.As<uint64_t>() + i * (kPiece / 8), kPiece / 8);
    });
  });
  SC_CHECK(sums[0] == kPiece / 8);
  return kBytes / seconds;
}

double ReadBandwidth(ThreadPool& pool) {
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) best = std::max(best, ReadOnce(pool));
  return best;
}

double PeakFlops(ThreadPool& pool) {
  const size_t n_threads = static_cast<size_t>(pool.n_threads());
  std::vector<float> sinks(n_threads * 16);
  std::vector<double> done(n_threads * 16);
  double best = 0;
  for (int pass = 0; pass < 8; ++pass) {
    const double seconds = SecondsOf([&] {
      pool.Run(n_threads, [&](size_t i, int) {
        done[i * 16] = HWY_DYNAMIC_DISPATCH(MultiplyAdds)(2'000'000, &sinks[i * 16]);
      });
    });
    double total = 0;
    for (size_t i = 0; i < n_threads; ++i) total += done[i * 16];
    best = std::max(best, 2 * total / seconds);
  }
  return best;
}

}  // namespace stagecoach::kernels
#endif
