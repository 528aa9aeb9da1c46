// Attention to keys and values. latents_bench.cpp has attention to latents.
#pragma once

#include <fmt/format.h>

#include <string>

#include "kernels/cuda/bench/bench.h"

namespace stagecoach::kernels {

struct Heads {
  int32_t n_heads, n_kv_heads, head_dim;
  DType dtype = kType;
  int32_t window = 0;
  bool has_sinks = false;
  bool fp8_cache = false;

  DType kv_dtype() const { return fp8_cache ? DType::kFp8 : dtype; }
  std::string Name() const {
    std::string name = fmt::format("attention {}/{} x {}", n_heads, n_kv_heads, head_dim);
    if (dtype != kType) name += fmt::format(" {}", DTypeName(dtype));
    if (window > 0) name += fmt::format(" window {}", window);
    if (has_sinks) name += " sinks";
    if (fp8_cache) name += ", fp8 cache";
    return name;
  }
};

// n_seqs sequences with `context` positions each; the last n_tokens positions attend.
void BenchAttention(Bench& bench, const Heads& heads, int32_t n_seqs, int32_t context,
                    int32_t n_tokens);

// An FP8 cache beside one of 16 bits.
void BenchFp8Cache(Bench& bench);

// New tokens after a context. No size should take longer than a slightly larger one (a cliff).
void BenchCliffs(Bench& bench);

}  // namespace stagecoach::kernels
