// Shared by the GPU attention tests: a layer compared with the reference, and steps of all kinds.
#pragma once

#include <memory>
#include <vector>

#include "kernels/cuda/testing/device_values.h"
#include "kernels/testing/attention_layer.h"

namespace stagecoach::kernels {

inline std::vector<float> RandomQkv(const AttentionConfig& config, int32_t n, uint32_t seed,
                                    float deviation = 1) {
  return Rounded(RandomFloats(static_cast<size_t>(n * config.qkv_width()), seed, deviation),
                 config.dtype);
}

inline void CheckSequence(const AttentionConfig& config, int32_t n,
                          const std::vector<int32_t>& chunks, bool batch_invariant = false) {
  INFO("heads " << config.n_heads << "/" << config.n_kv_heads << " dim " << config.head_dim
                << " window " << config.window.size << " cap " << config.softcap << " "
                << DTypeName(config.dtype) << " tokens " << n);
  const std::vector<float> qkv = RandomQkv(config, n, 5);
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps(batch_invariant);
  const std::vector<float> expected =
      AttentionLayer(*reference, config, n, n / 16 + 2).InChunks(qkv, n);
  // The kernel rounds the softmax weights before it multiplies by v, and rounds k after the
  // rotation. Norms over all heads round q and k before it as well.
  const double n_roundings = config.norms_all_heads ? 4 : 2;
  const double tolerance = config.dtype == DType::kF32 ? 1e-4 : n_roundings * Step(config.dtype);
  for (const int32_t size : chunks) {
    INFO("chunk " << size);
    CHECK(WorstError(AttentionLayer(*ops, config, n, n / 16 + 2).InChunks(qkv, size), expected,
                     0.3) < tolerance);
  }
}

// Compares the last rows of a sequence, after one chunk with all earlier rows.
inline void CheckLastRows(const AttentionConfig& config, int32_t n_context,
                          const std::vector<int32_t>& sizes, bool batch_invariant = false) {
  const auto reference = MakeReferenceOps();
  const auto ops = NewCudaOps(batch_invariant);
  for (const int32_t size : sizes) {
    INFO("heads " << config.n_heads << "/" << config.n_kv_heads << " dim " << config.head_dim
                  << " window " << config.window.size << " cap " << config.softcap << " "
                  << DTypeName(config.dtype) << ", " << size << " behind " << n_context);
    const int32_t n = n_context + size;
    const std::vector<float> qkv = RandomQkv(config, n, 5);
    int32_t n_blocks = n / 16 + 2;
    if (n_blocks % 7 == 0)
      ++n_blocks;  // 7 and the number of blocks must be coprime for AttentionLayer's block order
    AttentionLayer theirs(*reference, config, n, n_blocks), ours(*ops, config, n, n_blocks);
    const std::vector<float> all = theirs.Step({{0, 0, n, qkv.data()}});
    ours.Step({{0, 0, n_context, qkv.data()}});
    const std::vector<float> out =
        ours.Step({{0, n_context, size, qkv.data() + int64_t{n_context} * config.qkv_width()}});
    const std::vector<float> expected(all.end() - static_cast<std::ptrdiff_t>(out.size()),
                                      all.end());
    CHECK(WorstError(out, expected, 0.3) <
          (config.dtype == DType::kF32 ? 1e-4 : 2 * Step(config.dtype)));
  }
}

// Steps that mix the prefill of one sequence with decodes and chunks of others.
struct MixedSteps {
  explicit MixedSteps(const AttentionConfig& config)
      : config(config),
        a(RandomQkv(config, 120, 1)),
        b(RandomQkv(config, 60, 2)),
        c(RandomQkv(config, 300, 3)) {}

  std::vector<std::vector<AttentionLayer::Chunk>> Steps() const {
    const int32_t width = config.qkv_width();
    return {{{0, 0, 119, a.data()}, {10, 0, 60, b.data()}, {16, 0, 250, c.data()}},
            {{16, 250, 49, c.data() + 250 * width}, {0, 119, 1, a.data() + 119 * width}},
            {{16, 299, 1, c.data() + 299 * width}}};
  }

  const AttentionConfig config;
  const std::vector<float> a, b, c;
};

}  // namespace stagecoach::kernels
