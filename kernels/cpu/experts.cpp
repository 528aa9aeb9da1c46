#include "kernels/cpu/experts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "common/check.h"
#include "common/status.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/embed.h"

namespace stagecoach::kernels {
namespace {

float OrMinusInfinity(float logit) {
  return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
}

// Keeps the n_used experts with the largest score(e), in order, the lower id first on a tie.
// experts, scores: [n_used]
template <typename F>
void ChooseBest(int32_t n_experts, int32_t n_used, const F& score_of, int32_t* experts,
                float* scores) {
  int32_t n_kept = 0;
  for (int32_t e = 0; e < n_experts; ++e) {
    const float score = score_of(e);
    if (n_kept == n_used && !(score > scores[n_used - 1])) continue;
    int32_t at = n_kept < n_used ? n_kept++ : n_used - 1;
    for (; at > 0 && score > scores[at - 1]; --at) {
      scores[at] = scores[at - 1];
      experts[at] = experts[at - 1];
    }
    scores[at] = score;
    experts[at] = e;
  }
}

// Sets the scores outside the n_used best groups to -inf. best: of the scores of a group.
template <typename F>
void KeepBestGroups(int32_t n_groups, int32_t n_used, const F& best, std::span<float> scores) {
  const size_t size = scores.size() / static_cast<size_t>(n_groups);
  const auto of_group = [&](int32_t group) {
    return scores.subspan(static_cast<size_t>(group) * size, size);
  };
  std::vector<int32_t> chosen(static_cast<size_t>(n_used));
  std::vector<float> best_scores(chosen.size());
  ChooseBest(
      n_groups, n_used, [&](int32_t group) { return best(of_group(group)); }, chosen.data(),
      best_scores.data());
  for (int32_t group = 0; group < n_groups; ++group) {
    if (std::find(chosen.begin(), chosen.end(), group) != chosen.end()) continue;
    const std::span<float> dropped = of_group(group);
    std::fill(dropped.begin(), dropped.end(), -std::numeric_limits<float>::infinity());
  }
}

float Best(std::span<const float> scores) {
  return *std::max_element(scores.begin(), scores.end());
}

float BestTwo(std::span<const float> scores) {
  float first = std::max(scores[0], scores[1]), second = std::min(scores[0], scores[1]);
  for (const float score : scores.subspan(2)) {
    second = std::max(second, std::min(first, score));
    first = std::max(first, score);
  }
  return first + second;
}

// Without RouteArgs::sigmoid. logits: [n_experts]; experts, weights: [n_used]
void SoftmaxRow(const RouteArgs& args, const float* logits, int32_t* experts, float* weights) {
  const int32_t n_experts = args.n_experts, n_used = args.n_used;
  const SoftmaxGroups& groups = args.softmax_groups;
  const auto logit = [&](int32_t e) { return OrMinusInfinity(logits[e]); };
  if (groups.n_groups > 1) {
    std::vector<float> scores(static_cast<size_t>(n_experts));
    for (int32_t e = 0; e < n_experts; ++e) scores[static_cast<size_t>(e)] = logit(e);
    KeepBestGroups(groups.n_groups, groups.n_used_groups, Best, scores);
    ChooseBest(
        n_experts, n_used, [&](int32_t e) { return scores[static_cast<size_t>(e)]; }, experts,
        weights);
  } else {
    ChooseBest(n_experts, n_used, logit, experts, weights);
  }
  const float max = weights[0];
  float total = 0;
  const int32_t n_summed = args.over_used ? n_used : n_experts;
  for (int32_t i = 0; i < n_summed; ++i) {
    total += std::exp((args.over_used ? weights[i] : logit(i)) - max);
  }
  for (int32_t i = 0; i < n_used; ++i) {
    weights[i] = std::exp(weights[i] - max) / total * groups.factor;
  }
}

// The same with RouteArgs::sigmoid. Use from one thread at a time.
class SigmoidRouter {
 public:
  explicit SigmoidRouter(const RouteArgs& args)
      : args_(args), weights_(static_cast<size_t>(args.n_experts)), scores_(weights_.size()) {}

  void Row(const float* logits, int32_t* experts, float* weights) {
    for (size_t e = 0; e < weights_.size(); ++e) {
      weights_[e] = 1.0f / (1.0f + std::exp(-OrMinusInfinity(logits[e])));
      scores_[e] = weights_[e] + (args_.correction != nullptr ? args_.correction[e] : 0.0f);
    }
    if (args_.sigmoid->n_groups > 1) {
      KeepBestGroups(args_.sigmoid->n_groups, args_.sigmoid->n_used_groups, BestTwo, scores_);
    }
    ChooseBest(
        args_.n_experts, args_.n_used, [&](int32_t e) { return scores_[static_cast<size_t>(e)]; },
        experts, weights);
    float total = 0;
    for (int32_t i = 0; i < args_.n_used; ++i) {
      weights[i] = weights_[static_cast<size_t>(experts[i])];
      total += weights[i];
    }
    for (int32_t i = 0; i < args_.n_used; ++i) {
      if (args_.over_used) weights[i] /= std::max(total, 1e-20f);
      weights[i] *= args_.sigmoid->factor;
    }
  }

 private:
  const RouteArgs& args_;
  std::vector<float> weights_, scores_;
};

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
  if (args.sigmoid && args.sigmoid->n_groups > 1) {
    SC_CHECK(args.n_experts % args.sigmoid->n_groups == 0 &&
             args.n_experts / args.sigmoid->n_groups >= 2);
  }
  const size_t n_experts = static_cast<size_t>(args.n_experts);
  const size_t n_used = static_cast<size_t>(args.n_used);
  // An exponential costs about as much as ten of the elements that RunPieces counts.
  RunPieces(pool, static_cast<size_t>(args.n_tokens), 10 * n_experts,
            [&](size_t begin, size_t end) {
              if (args.sigmoid) {
                SigmoidRouter router(args);
                for (size_t t = begin; t < end; ++t) {
                  router.Row(args.logits + t * n_experts, args.experts + t * n_used,
                             args.weights + t * n_used);
                }
                return;
              }
              for (size_t t = begin; t < end; ++t) {
                SoftmaxRow(args, args.logits + t * n_experts, args.experts + t * n_used,
                           args.weights + t * n_used);
                if (args.expert_scales == nullptr) continue;
                for (size_t i = t * n_used; i < (t + 1) * n_used; ++i) {
                  args.weights[i] *= args.expert_scales[args.experts[i]];
                }
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
  if (args.clears_out) {
    std::fill_n(args.out, static_cast<size_t>(args.n_tokens) * static_cast<size_t>(hidden), 0.0f);
  }
  const auto bias = [](const float* all, int32_t expert, int32_t n) {
    return all != nullptr ? all + static_cast<size_t>(expert) * static_cast<size_t>(n) : nullptr;
  };
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
                                     .bias = bias(args.up_bias, e, args.up.front().rows),
                                     .y = floats(parts.up),
                                     .n_rows = n_rows},
                                    context));
    SC_RETURN_IF_ERROR(kernels.activation({.x = floats(parts.up),
                                           .out = floats(parts.activation),
                                           .n_rows = n_rows,
                                           .width = width,
                                           .kind = args.kind,
                                           .gated = args.gated,
                                           .clamped = args.clamped},
                                          context));
    SC_RETURN_IF_ERROR(kernels.gemm({.x = floats(parts.activation),
                                     .w = &args.down[static_cast<size_t>(e)],
                                     .bias = bias(args.down_bias, e, hidden),
                                     .y = floats(parts.y),
                                     .n_rows = n_rows},
                                    context));
    AddWeighted(floats(parts.y), tokens + first, weights + first, static_cast<size_t>(n_rows),
                static_cast<size_t>(hidden), args.out, *context.pool);
  }
  return absl::OkStatus();
}

}  // namespace stagecoach::kernels
