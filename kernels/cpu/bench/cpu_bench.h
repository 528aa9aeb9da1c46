// What the benchmarks of the CPU kernels share. Every result is checked before it is timed.
#pragma once

#include <algorithm>
#include <ostream>
#include <vector>

#include "common/check.h"
#include "common/encoding/encoding.h"
#include "kernels/cpu/bench/machine_peak.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/ops.h"

namespace stagecoach::kernels {

// Normal random numbers around 0, always the same ones.
std::vector<float> RandomFloats(size_t n, float deviation);

// Stops the program if a value is off by 1e-4 of its size or of 4.
void CheckClose(const std::vector<float>& values, const std::vector<float>& expected);

struct Bench {
  Ops& ops;
  ThreadPool& pool;
  double seconds_each;
  std::ostream* json;  // lines of some measurements (--json); null: none

  // The best time of a call, because other processes can only make it slower.
  template <typename F>
  double BestSeconds(const F& call) const {
    double best = 1e30;
    const double end = BenchSeconds() + seconds_each;
    for (int calls = 0; calls < 3 || BenchSeconds() < end; ++calls) {
      const double start = BenchSeconds();
      call();
      best = std::min(best, BenchSeconds() - start);
    }
    SC_CHECK(ops.Synchronize().ok());
    return best;
  }
};

struct AttentionShape {
  int32_t n_heads, n_kv_heads, head_dim;
};

// Products with w [n, k], for up to most_rows rows. Prints a line for each number of rows.
void BenchGemm(const Bench& bench, int32_t n, int32_t k, const Encoding& type,
               int32_t most_rows = 512);

// The experts of a layer of Qwen3-30B-A3B.
void BenchExperts(const Bench& bench, const Encoding& up_type, const Encoding& down_type);

// n_seqs sequences with `context` positions each; the last n_tokens positions attend. Returns the
// seconds of a call.
double BenchAttention(const Bench& bench, const AttentionShape& shape, int32_t n_seqs,
                      int32_t context, int32_t n_tokens, DType kv_dtype = DType::kBF16);

// An FP8 cache beside one in bfloat16.
void BenchFp8Cache(const Bench& bench, const AttentionShape& shape, int32_t n_seqs, int32_t context,
                   int32_t n_tokens);

// Latent attention of a prompt with DeepSeek's sizes, beside the form with keys and values.
void BenchLatents(const Bench& bench, int32_t n_heads, int32_t n_tokens);

// A recurrent layer of Qwen3-Next-80B-A3B beside its products.
void BenchDeltaNet(const Bench& bench, int32_t n_seqs, int32_t n_tokens);

}  // namespace stagecoach::kernels
