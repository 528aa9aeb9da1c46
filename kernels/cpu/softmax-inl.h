// Row operations of attention with online softmax. Sources: M. Milakov, N. Gimelshein, "Online
// normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022. Included once
// per instruction set.
#if defined(STAGECOACH_KERNELS_CPU_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef STAGECOACH_KERNELS_CPU_SOFTMAX_INL_H_
#undef STAGECOACH_KERNELS_CPU_SOFTMAX_INL_H_
#else
#define STAGECOACH_KERNELS_CPU_SOFTMAX_INL_H_
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include <cmath>
#include <cstddef>
#include <limits>

#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/panel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

inline constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// The state of a row after some of its keys: the sum of exp(score - max), kept in 16 lanes by key
// modulo 16, and the values weighted by the same terms. max is -inf before the first key.
struct RowState {
  float* max;     // [1]
  float* sum;     // [16]
  float* values;  // [padded head_dim]
};

HWY_INLINE float ExpOf(float x) {
  const hn::CappedTag<float, 1> d;
  return hn::GetLane(hn::Exp(d, hn::Set(d, x)));
}

HWY_INLINE void ScaleFloats(float* x, size_t n, float factor) {
  const PanelTag d;
  const PanelVec f = hn::Set(d, factor);
  for (size_t i = 0; i < n; i += kPanelLanes) hn::Store(hn::Mul(hn::Load(d, x + i), f), d, x + i);
}

// Turns the scores [begin, end) of a row into weights relative to the row's new maximum, and
// rescales the row's state. Only keys [first, last] count. scores: [64]; begin and end are
// multiples of 16.
HWY_INLINE void SoftmaxStep(float* scores, size_t begin, size_t end, size_t first, size_t last,
                            float softcap, const RowState& row, size_t padded_dim) {
  const PanelTag d;
  if (softcap > 0) {
    const PanelVec cap = hn::Set(d, softcap), inverse = hn::Set(d, 1.0f / softcap);
    for (size_t i = begin; i < end; i += kPanelLanes) {
      const PanelVec score = hn::Load(d, scores + i);
      hn::Store(hn::Mul(cap, hn::Tanh(d, hn::Mul(score, inverse))), d, scores + i);
    }
  }
  for (size_t i = begin; i < first; ++i) scores[i] = kMinusInfinity;
  for (size_t i = last + 1; i < end; ++i) scores[i] = kMinusInfinity;
  PanelVec max_vector = hn::Set(d, kMinusInfinity);
  for (size_t i = begin; i < end; i += kPanelLanes) {
    max_vector = hn::Max(max_vector, hn::Load(d, scores + i));
  }
  const float max = std::max(*row.max, hn::GetLane(hn::MaxOfLanes(d, max_vector)));
  if (max != *row.max) {
    const float factor = ExpOf(*row.max - max);
    ScaleFloats(row.sum, kBlock, factor);
    ScaleFloats(row.values, padded_dim, factor);
    *row.max = max;
  }
  max_vector = hn::Set(d, max);
  PanelVec sum[kPanelVecs];
  for (size_t v = 0; v < kPanelVecs; ++v) sum[v] = hn::Load(d, row.sum + v * kPanelLanes);
  for (size_t i = begin; i < end; i += kBlock) {
    for (size_t v = 0; v < kPanelVecs; ++v) {
      float* const at = scores + i + v * kPanelLanes;
      const PanelVec weight = hn::Exp(d, hn::Sub(hn::Load(d, at), max_vector));
      hn::Store(weight, d, at);
      sum[v] = hn::Add(sum[v], weight);
    }
  }
  for (size_t v = 0; v < kPanelVecs; ++v) hn::Store(sum[v], d, row.sum + v * kPanelLanes);
}

HWY_INLINE void ScaleAndAdd(float* to, float to_factor, const float* from, float from_factor,
                            size_t n) {
  const PanelTag d;
  const PanelVec f = hn::Set(d, to_factor), g = hn::Set(d, from_factor);
  for (size_t i = 0; i < n; i += kPanelLanes) {
    const PanelVec added = hn::Mul(hn::Load(d, from + i), g);
    hn::Store(hn::MulAdd(hn::Load(d, to + i), f, added), d, to + i);
  }
}

// Merges the keys of `part`, which all come after those of `row`.
HWY_INLINE void MergeRow(const RowState& row, const RowState& part, size_t padded_dim) {
  const float max = std::max(*row.max, *part.max);
  const float row_factor = ExpOf(*row.max - max), part_factor = ExpOf(*part.max - max);
  ScaleAndAdd(row.sum, row_factor, part.sum, part_factor, kBlock);
  ScaleAndAdd(row.values, row_factor, part.values, part_factor, padded_dim);
  *row.max = max;
}

// Adds a key that has this score and no value.
HWY_INLINE void AddSink(float score, const RowState& row, size_t padded_dim) {
  const float max = std::max(*row.max, score);
  const float factor = ExpOf(*row.max - max);
  ScaleFloats(row.sum, kBlock, factor);
  ScaleFloats(row.values, padded_dim, factor);
  row.sum[0] += ExpOf(score - max);
  *row.max = max;
}

// out: [head_dim]
HWY_INLINE void FinishRow(const RowState& row, size_t head_dim, float* out) {
  float sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += row.sum[i];
  const float inverse = 1.0f / sum;
  for (size_t i = 0; i < head_dim; ++i) out[i] = row.values[i] * inverse;
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#endif
