#include "kernels/cpu/recurrent_copies.h"

#include <algorithm>

#include "kernels/cpu/elementwise.h"

namespace stagecoach::kernels {

void CpuSplitGate(const SplitGateArgs& args, ThreadPool& pool) {
  const auto head_dim = static_cast<size_t>(args.head_dim);
  const auto n_heads = static_cast<size_t>(args.n_heads);
  const size_t q_width = n_heads * head_dim;
  const size_t kv_width = 2 * static_cast<size_t>(args.n_kv_heads) * head_dim;
  RunPieces(pool, static_cast<size_t>(args.n_tokens), 2 * q_width + kv_width,
            [&](size_t begin, size_t end) {
              for (size_t t = begin; t < end; ++t) {
                const float* from = args.projected + t * (2 * q_width + kv_width);
                float* const qkv = args.qkv.f32() + t * (q_width + kv_width);
                float* const gate = args.gate + t * q_width;
                for (size_t h = 0; h < n_heads; ++h, from += 2 * head_dim) {
                  std::copy_n(from, head_dim, qkv + h * head_dim);
                  std::copy_n(from + head_dim, head_dim, gate + h * head_dim);
                }
                std::copy_n(from, kv_width, qkv + q_width);
              }
            });
}

void CpuCopyStates(const CopyStatesArgs& args, ThreadPool& pool) {
  const auto n = static_cast<size_t>(args.n_elements);
  for (const StateCopy& copy : args.copies) {
    const float* const from = args.states + static_cast<size_t>(copy.from) * n;
    float* const to = args.states + static_cast<size_t>(copy.to) * n;
    RunPieces(pool, n, 1,
              [&](size_t begin, size_t end) { std::copy(from + begin, from + end, to + begin); });
  }
}

}  // namespace stagecoach::kernels
