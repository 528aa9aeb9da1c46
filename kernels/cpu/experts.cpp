#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/check.h"
#include "common/status.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embed.h"

namespace stagecoach::kernels {
namespace {

float OrMinusInfinity(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

// logits: [n_experts]; experts, weights: [n_used]
void RouteRow(const float* logits, int32_t n_experts, int32_t n_used, bool over_used,
              int32_t* experts, float* weights) {
  // The best experts so far, in order. Until the end, `weights` holds their logits.
  int32_t n_kept = 0;
  for (int32_t e = 0; e < n_experts; ++e) {
    const float logit = OrMinusInfinity(logits[e]);
    if (n_kept == n_used && !(logit > weights[n_used - 1])) continue;
    int32_t at = n_kept < n_used ? n_kept++ : n_used - 1;
    for (; at > 0 && logit > weights[at - 1]; --at) {
      weights[at] = weights[at - 1];
      experts[at] = experts[at - 1];
    }
    weights[at] = logit;
    experts[at] = e;
  }
  const float max = weights[0];
  float total = 0;
  const int32_t n_summed = over_used ? n_used : n_experts;
  for (int32_t i = 0; i < n_summed; ++i) {
    total += std::exp((over_used ? weights[i] : OrMinusInfinity(logits[i])) - max);
  }
  for (int32_t i = 0; i < n_used; ++i) weights[i] = std::exp(weights[i] - max) / total;
}

// Offsets of the scratch arrays. R: max_tokens, the maximum number of rows for one expert.
struct ExpertScratch {
  explicit ExpertScratch(const ExpertShape& shape) {
    const auto take = [this](int64_t rows, int64_t width) {
      const size_t start = bytes;
      bytes += (static_cast<size_t>(rows * width) * sizeof(float) + 63) / 64 * 64;
      return start;
    };
    const int64_t rows = shape.max_tokens;
    starts = take(1, int64_t{shape.n_experts} + 1);
    tokens = take(rows, shape.n_used);
    weights = take(rows, shape.n_used);
    x = take(rows, shape.hidden);
    up = take(rows, int64_t{2} * shape.width);
    activation = take(rows, shape.width);
    y = take(rows, shape.hidden);
  }
  template <typename T>
  static T* At(void* scratch, size_t start) {
    return reinterpret_cast<T*>(static_cast<std::byte*>(scratch) + start);
  }

  size_t bytes = 0;
  size_t starts;                // [n_experts + 1] int32: each expert's range in the next two
  size_t tokens;                // [R * n_used] int32, sorted by expert, then by row
  size_t weights;               // [R * n_used]
  size_t x, up, activation, y;  // [R, hidden], [R, 2 * width], [R, width], [R, hidden]
};

// Groups rows by expert with a counting sort.
// starts: [n_experts + 1]; tokens, weights: [T * n_used]
void GroupByExpert(const ExpertMlpArgs& args, int32_t* starts, int32_t* tokens, float* weights) {
  const size_t n_experts = args.up.size();
  const int32_t n_pairs = args.n_tokens * args.n_used;
  std::fill_n(starts, n_experts + 1, 0);
  for (int32_t i = 0; i < n_pairs; ++i) {
    SC_CHECK(args.experts[i] >= 0 && static_cast<size_t>(args.experts[i]) < n_experts);
    ++starts[args.experts[i] + 1];
  }
  for (size_t e = 0; e < n_experts; ++e) starts[e + 1] += starts[e];
  for (int32_t i = 0; i < n_pairs; ++i) {
    const int32_t at = starts[args.experts[i]]++;
    tokens[at] = i / args.n_used;
    weights[at] = args.weights[i];
  }
  // Each start is now the end of its expert's range: shift by one.
  std::copy_backward(starts, starts + n_experts, starts + n_experts + 1);
  starts[0] = 0;
}

// out[tokens[r]] += weights[r] * y[r]; y: [n_rows, width]. All tokens are distinct.
void AddWeighted(const float* y, const int32_t* tokens, const float* weights, size_t n_rows,
                 size_t width, float* out, ThreadPool& pool) {
  RunPieces(pool, n_rows, width, [&](size_t begin, size_t end) {
    for (size_t r = begin; r < end; ++r) {
      float* const to = out + static_cast<size_t>(tokens[r]) * width;
      const float* const from = y + r * width;
      for (size_t i = 0; i < width; ++i) to[i] += weights[r] * from[i];
    }
  });
}

}  // namespace

void CpuRoute(const RouteArgs& args, ThreadPool& pool) {
  SC_CHECK(args.n_used >= 1 && args.n_used <= args.n_experts);
  const size_t n_experts = static_cast<size_t>(args.n_experts);
  const size_t n_used = static_cast<size_t>(args.n_used);
  // An exponential costs about as much as ten of the elements that RunPieces counts.
  RunPieces(pool, static_cast<size_t>(args.n_tokens), 10 * n_experts,
            [&](size_t begin, size_t end) {
              for (size_t t = begin; t < end; ++t) {
                RouteRow(args.logits + t * n_experts, args.n_experts, args.n_used, args.over_used,
                         args.experts + t * n_used, args.weights + t * n_used);
              }
            });
}

size_t CpuExpertScratchBytes(const ExpertShape& shape) { return ExpertScratch(shape).bytes; }

absl::Status CpuExpertMlp(const ExpertMlpArgs& args, const CpuKernels& kernels,
                          CpuContext& context) {
  SC_CHECK(args.up.size() == args.down.size() && !args.up.empty());
  const int32_t hidden = args.down.front().rows, width = args.down.front().cols;
  const int32_t n_experts = static_cast<int32_t>(args.up.size());
  const ExpertScratch parts({args.n_tokens, n_experts, args.n_used, hidden, width});
  const auto floats = [&](size_t start) { return ExpertScratch::At<float>(args.scratch, start); };
  int32_t* const starts = ExpertScratch::At<int32_t>(args.scratch, parts.starts);
  int32_t* const tokens = ExpertScratch::At<int32_t>(args.scratch, parts.tokens);
  float* const weights = floats(parts.weights);
  GroupByExpert(args, starts, tokens, weights);
  for (int32_t e = 0; e < n_experts; ++e) {
    const int32_t first = starts[e], n_rows = starts[e + 1] - first;
    if (n_rows == 0) continue;
    CpuGatherRows({.x = args.x.f32(),
                   .rows = tokens + first,
                   .out = floats(parts.x),
                   .n_rows = n_rows,
                   .width = hidden},
                  *context.pool);
    SC_RETURN_IF_ERROR(kernels.gemm({.x = floats(parts.x),
                                     .w = &args.up[static_cast<size_t>(e)],
                                     .y = floats(parts.up),
                                     .n_rows = n_rows},
                                    context));
    SC_RETURN_IF_ERROR(kernels.activation({.x = floats(parts.up),
                                           .out = floats(parts.activation),
                                           .n_rows = n_rows,
                                           .width = width,
                                           .kind = args.kind,
                                           .gated = true},
                                          context));
    SC_RETURN_IF_ERROR(kernels.gemm({.x = floats(parts.activation),
                                     .w = &args.down[static_cast<size_t>(e)],
                                     .y = floats(parts.y),
                                     .n_rows = n_rows},
                                    context));
    AddWeighted(floats(parts.y), tokens + first, weights + first, static_cast<size_t>(n_rows),
                static_cast<size_t>(hidden), args.out, *context.pool);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::kernels
