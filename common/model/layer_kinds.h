// Layer variants that the kernels know as well.
#pragma once

#include <cmath>
#include <cstdint>

namespace stagecoach {

enum class NormKind : uint8_t {
  kLayerNorm,  // (x - mean) / sqrt(var + eps) * w + b
  kRms,        // x / sqrt(mean(x^2) + eps) * w
  kRmsPlusOne  // the same with (1 + w): Gemma
};

// What a layer's projection makes of a row beside its queries.
enum class KvOfRow : uint8_t {
  kKeysAndValues,
  kKeysAsValues,  // keys, which are also the values: without norm and rotation of keys
  kNone,          // nothing: the layer attends to keys and values of another layer
  kLatents        // nothing: latents, which have a projection of their own (LatentSpec)
};

// Vectors of n_kv_heads heads in a row after the queries.
constexpr int32_t NKvVectors(KvOfRow kind) {
  return kind == KvOfRow::kKeysAndValues ? 2 : kind == KvOfRow::kKeysAsValues ? 1 : 0;
}

// Vectors of n_kv_heads heads that the KV cache keeps of a token: keys and values, or latents, or
// nothing.
constexpr int32_t NCachedVectors(KvOfRow kind) {
  return kind == KvOfRow::kNone ? 0 : kind == KvOfRow::kLatents ? 1 : 2;
}

enum class Activation : uint8_t { kRelu, kReluSquared, kGelu, kGeluTanh, kSilu };

// In place of act(gate) * up: g * sigmoid(slope * g) * (1 + u), where g is gate but at most limit,
// and u is up within [-limit, limit] (gpt-oss).
struct ClampedGlu {
  float limit = 0;  // 0: off
  float slope = 1;
};

// Queries late in a text are larger (Llama 4, Ministral 3).
struct QueryScaling {
  float beta = 0;  // 0: off
  int32_t step = 1;
  int32_t offset = 0;  // added to positions

  float At(int32_t position) const {
    if (beta == 0) return 1;
    const int32_t n_steps = (position + offset) / step;
    return 1 + beta * std::log1p(static_cast<float>(n_steps));
  }
};

// Experts are chosen by sigmoid(logit) plus a learned correction, among the best groups of experts;
// a group counts as much as its best two. Weights are sigmoid(logit) without the correction
// (DeepSeek-V3 and its successors).
struct SigmoidRouting {
  int32_t n_groups = 1;       // of equally many consecutive experts
  int32_t n_used_groups = 1;  // groups from which a row's experts come
  float factor = 1;           // of the weights
};

// Experts are chosen by softmax among the best groups of experts; a group counts as much as its
// best one. Weights are those of the softmax over all experts (DeepSeek-V2).
struct SoftmaxGroups {
  int32_t n_groups = 1;       // of equally many consecutive experts
  int32_t n_used_groups = 1;  // groups from which a row's experts come
  float factor = 1;           // of the weights
};

}  // namespace stagecoach
