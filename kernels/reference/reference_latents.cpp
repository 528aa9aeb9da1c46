#include "kernels/reference/reference_latents.h"

#include <cmath>

#include "common/check.h"
#include "common/float_convert.h"

namespace stagecoach::kernels {
namespace {

// x: [rope->rotary_dim]
void Rotate(const RopeTable& rope, bool interleaved, int32_t position, float* x) {
  const size_t half = static_cast<size_t>(rope.rotary_dim) / 2;
  const size_t row = static_cast<size_t>(position) * half;
  for (size_t i = 0; i < half; ++i) {
    float& low = x[interleaved ? 2 * i : i];
    float& high = x[interleaved ? 2 * i + 1 : i + half];
    const double a = low, b = high, cos = rope.cos[row + i], sin = rope.sin[row + i];
    low = static_cast<float>(a * cos - b * sin);
    high = static_cast<float>(b * cos + a * sin);
  }
}

}  // namespace

void ReferenceHeadGemm(const HeadGemmArgs& args) {
  const Matrix& w = *args.w;
  const int32_t n_outputs = w.rows / args.n_heads;
  for (int32_t item = 0; item < args.n_rows * args.n_heads; ++item) {
    const float* const x = args.x.f32() + static_cast<size_t>(item) * args.x_dim;
    float* const y = args.y.f32() + static_cast<size_t>(item) * args.y_dim;
    const size_t first = static_cast<size_t>(item % args.n_heads) * n_outputs;
    for (int32_t n = 0; n < n_outputs; ++n) {
      double sum = 0;
      for (int32_t k = 0; k < w.cols; ++k) {
        sum += static_cast<double>(x[k]) *
               LoadElement(w.buffer.data.get(), w.dtype, (first + n) * w.cols + k);
      }
      y[n] = static_cast<float>(sum);
    }
  }
}

void ReferenceLatentAppend(const LatentAppendArgs& args) {
  SC_CHECK(args.kv.dtype != DType::kFp8);  // rows of latents have no scales
  const int32_t rank = args.kv_rank, rope = args.rope_dim;
  for (int32_t t = 0; t < args.n_tokens; ++t) {
    float* const latent = args.latents + static_cast<size_t>(t) * (rank + rope);
    double square = 0;
    for (int32_t i = 0; i < rank; ++i) square += static_cast<double>(latent[i]) * latent[i];
    const double scale = 1 / std::sqrt(square / rank + args.norm_eps);
    for (int32_t i = 0; i < rank; ++i) {
      latent[i] = static_cast<float>(latent[i] * scale * args.norm[i]);
    }
    Rotate(*args.rope, args.interleaved, args.positions[t], latent + rank);
    const size_t start = static_cast<size_t>(args.kv_slots[t]) * (rank + rope);
    for (int32_t i = 0; i < rank + rope; ++i) {
      StoreElement(args.kv.k, args.kv.dtype, start + i, latent[i]);
    }
    for (int32_t h = 0; h < args.n_heads; ++h) {
      const size_t head = static_cast<size_t>(t) * args.n_heads + h;
      const float* const q =
          args.q.f32() + head * (args.nope_dim + rope) + static_cast<size_t>(args.nope_dim);
      float* const to = args.queries.f32() + head * (rank + rope) + static_cast<size_t>(rank);
      for (int32_t i = 0; i < rope; ++i) to[i] = q[i];
      Rotate(*args.rope, args.interleaved, args.positions[t], to);
      const float factor = args.query_scaling.At(args.positions[t]);
      for (int32_t i = -rank; i < rope; ++i) to[i] *= factor;
    }
  }
}

}  // namespace stagecoach::kernels
