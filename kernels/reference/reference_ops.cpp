#include "kernels/reference/reference_ops.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "common/check.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "common/host_memory.h"
#include "kernels/host_step.h"
#include "kernels/reference/reference_kv.h"
#include "kernels/reference/reference_latents.h"
#include "kernels/reference/reference_recurrence.h"
#include "kernels/reference/reference_sample.h"

namespace stagecoach::kernels {
namespace {

double Activated(double x, Activation kind) {
  switch (kind) {
    case Activation::kRelu:
      return x > 0 ? x : 0;
    case Activation::kReluSquared:
      return x > 0 ? x * x : 0;
    case Activation::kGelu:
      return 0.5 * x * std::erfc(-x * std::sqrt(0.5));
    case Activation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
  }
  return 0;
}

double ClampedGluOf(double gate, double up, const ClampedGlu& glu) {
  const double g = std::min<double>(gate, glu.limit);
  const double u = std::clamp<double>(up, -glu.limit, glu.limit);
  return g / (1 + std::exp(-glu.slope * g)) * (1 + u);
}

// The weights of all experts of a row by sigmoid, and the scores to choose by: [n_experts] each.
struct SigmoidScores {
  std::vector<double> weights, scores;
};

SigmoidScores SigmoidScoresOf(const RouteArgs& args, const float* logits) {
  SigmoidScores all;
  for (int32_t e = 0; e < args.n_experts; ++e) {
    all.weights.push_back(std::isnan(logits[e]) ? 0 : 1 / (1 + std::exp(-double{logits[e]})));
    all.scores.push_back(all.weights.back() +
                         (args.correction != nullptr ? args.correction[e] : 0));
  }
  const int32_t n_groups = args.sigmoid->n_groups, size = args.n_experts / n_groups;
  if (n_groups == 1) return all;
  std::vector<std::pair<double, int32_t>> groups;  // {minus the best two, group}
  for (int32_t g = 0; g < n_groups; ++g) {
    std::vector<double> of_group(all.scores.begin() + g * size,
                                 all.scores.begin() + (g + 1) * size);
    std::sort(of_group.rbegin(), of_group.rend());
    groups.emplace_back(-of_group[0] - of_group[1], g);
  }
  std::sort(groups.begin(), groups.end());
  for (size_t i = static_cast<size_t>(args.sigmoid->n_used_groups); i < groups.size(); ++i) {
    std::fill_n(all.scores.begin() + groups[i].second * size, size, -INFINITY);
  }
  return all;
}

// Which experts are outside the best groups of RouteArgs::softmax_groups. value: of an expert's
// logit.
template <typename F>
std::vector<bool> DroppedExperts(const RouteArgs& args, const F& value) {
  const SoftmaxGroups& groups = args.softmax_groups;
  const int32_t size = args.n_experts / groups.n_groups;
  std::vector<std::pair<double, int32_t>> order;  // {minus the best, group}
  for (int32_t g = 0; g < groups.n_groups; ++g) {
    double best = value(g * size);
    for (int32_t e = g * size; e < (g + 1) * size; ++e) best = std::max<double>(best, value(e));
    order.emplace_back(-best, g);
  }
  std::sort(order.begin(), order.end());
  std::vector<bool> dropped(static_cast<size_t>(args.n_experts));
  for (size_t i = static_cast<size_t>(groups.n_used_groups); i < order.size(); ++i) {
    std::fill_n(dropped.begin() + order[i].second * size, size, true);
  }
  return dropped;
}

// out[i] = norm(x)[i] for [width] values; out may alias x.
void NormRow(const float* x, const float* weight, const float* bias, int32_t width, NormKind kind,
             double eps, float* out, bool add_to_out) {
  double mean = 0, square = 0;
  if (kind == NormKind::kLayerNorm) {
    for (int32_t i = 0; i < width; ++i) mean += x[i];
    mean /= width;
  }
  for (int32_t i = 0; i < width; ++i) square += (x[i] - mean) * (x[i] - mean);
  const double scale = 1 / std::sqrt(square / width + eps);
  for (int32_t i = 0; i < width; ++i) {
    const double given = weight != nullptr ? weight[i] : 1.0;
    const double w = kind == NormKind::kRmsPlusOne ? 1.0 + given : given;
    const double value = (x[i] - mean) * scale * w + (bias != nullptr ? bias[i] : 0);
    out[i] = static_cast<float>(add_to_out ? out[i] + value : value);
  }
}

class ReferenceOps final : public Ops {
 public:
  std::string Describe() const override { return "reference"; }
  std::string Numerics() const override { return "reference"; }
  MemoryInUse Memory() const override {
    const HostMemory memory = ReadHostMemory();
    return {.total_bytes = memory.total_bytes, .free_bytes = memory.available_bytes};
  }

  absl::StatusOr<Buffer> Allocate(size_t bytes) override {
    const size_t rounded = (std::max<size_t>(bytes, 1) + 63) / 64 * 64;
    void* data = std::aligned_alloc(64, rounded);
    if (data == nullptr) {
      return absl::ResourceExhaustedError("no memory for " + std::to_string(bytes) + " bytes");
    }
    std::memset(data, 0, rounded);
    return Buffer{std::shared_ptr<void>(data, std::free), bytes};
  }
  absl::StatusOr<SharedBuffer> AllocateShared(size_t bytes) override {
    return AllocateSharedHost(bytes);
  }
  absl::StatusOr<Buffer> MapShared(int fd, size_t bytes) override {
    return MapSharedHost(fd, bytes);
  }
  void Upload(const void* host, void* device, size_t bytes) override {
    std::memcpy(device, host, bytes);
  }
  void Download(const void* device, void* host, size_t bytes) override {
    std::memcpy(host, device, bytes);
  }
  void ExportKv(const KvCopyArgs& args) override {
    ForEachKvCopy(args, [](void* cache, void* host, size_t n) { std::memcpy(host, cache, n); });
  }
  void ImportKv(const KvCopyArgs& args) override {
    ForEachKvCopy(args, [](void* cache, void* host, size_t n) { std::memcpy(cache, host, n); });
  }

  size_t MatrixBytes(int32_t rows, int32_t cols, DType dtype) const override {
    return static_cast<size_t>(rows) * static_cast<size_t>(cols) * DTypeBytes(dtype);
  }
  void PackRows(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source,
                DType source_dtype) override {
    SC_CHECK(first_row >= 0 && n_rows >= 0 && first_row + n_rows <= matrix.rows);
    const size_t n = static_cast<size_t>(n_rows) * matrix.cols;
    const size_t first = static_cast<size_t>(first_row) * matrix.cols;
    for (size_t i = 0; i < n; ++i) {
      StoreElement(matrix.buffer.data.get(), matrix.dtype, first + i,
                   LoadElement(source, source_dtype, i));
    }
  }

  // Quantized weights are stored as the float32 values that their codes represent.
  bool Keeps(const Encoding&, int32_t) const override { return true; }
  size_t MatrixBytes(std::span<const MatrixPart> parts, int32_t cols) const override {
    size_t bytes = 0;
    for (const MatrixPart& part : parts) bytes += MatrixBytes(part.rows, cols, DType::kF32);
    return bytes;
  }
  absl::StatusOr<Matrix> MatrixOf(Buffer memory, std::span<const MatrixPart> parts,
                                  int32_t cols) override {
    Matrix matrix{.buffer = std::move(memory), .cols = cols, .parts = {parts.begin(), parts.end()}};
    for (const MatrixPart& part : parts) matrix.rows += part.rows;
    return matrix;
  }
  void PackStored(Matrix& matrix, int32_t first_row, int32_t n_rows, const void* source) override {
    auto part = matrix.parts.begin();
    for (int32_t end = part->rows; end <= first_row; end += part->rows) ++part;
    SC_CHECK(first_row >= 0 && n_rows >= 0 && first_row + n_rows <= matrix.rows);
    float* const out = matrix.buffer.As<float>() + static_cast<size_t>(first_row) * matrix.cols;
    DecodeRows(part->encoding, source, static_cast<size_t>(n_rows),
               static_cast<size_t>(matrix.cols), out);
  }
  void PackInputOrder(Matrix& matrix, int32_t first_row, std::span<const int32_t> order) override {
    int32_t begin = 0;
    auto part = matrix.parts.begin();
    while (begin + part->rows <= first_row) {
      begin += part->rows;
      ++part;
    }
    std::vector<float> packed(order.size());
    for (int32_t r = begin; r < begin + part->rows; ++r) {
      float* const row = matrix.buffer.As<float>() + static_cast<size_t>(r) * matrix.cols;
      std::copy_n(row, order.size(), packed.begin());
      for (size_t i = 0; i < order.size(); ++i) row[order[i]] = packed[i];
    }
  }

  absl::StatusOr<std::unique_ptr<StepInputs>> NewStepInputs(const StepLimits& limits) override {
    return NewHostStepInputs(limits);
  }
  void BuildStep(const StepBatch& batch, StepInputs* inputs) override {
    BuildHostStep(batch, inputs);
  }

  void Embed(const EmbedArgs& args) override {
    const int32_t width = (args.table != nullptr ? args.table : args.position_table)->cols;
    for (int32_t t = 0; t < args.n_tokens; ++t) {
      for (int32_t i = 0; i < width; ++i) {
        float value =
            args.table != nullptr ? Weight(*args.table, args.ids[t], i) * args.scale : 0.0f;
        if (args.position_table != nullptr) {
          value += Weight(*args.position_table, args.positions[t] + args.position_offset, i);
        }
        args.out.f32()[static_cast<size_t>(t) * width + i] = value;
      }
    }
  }

  void Gemm(const GemmArgs& args) override {
    const Matrix& w = *args.w;
    for (int32_t t = 0; t < args.n_rows; ++t) {
      for (int32_t n = 0; n < w.rows; ++n) {
        double sum = 0;
        for (int32_t k = 0; k < w.cols; ++k) {
          sum += static_cast<double>(args.x.f32()[static_cast<size_t>(t) * w.cols + k]) *
                 Weight(w, n, k);
        }
        if (args.bias != nullptr) sum += args.bias[n];
        float& y = args.y.f32()[static_cast<size_t>(t) * w.rows + n];
        y = static_cast<float>(args.add_to_y ? y + sum : sum);
      }
    }
  }

  void Norm(const NormArgs& args) override {
    for (int32_t t = 0; t < args.n_rows; ++t) {
      const size_t first = static_cast<size_t>(t) * args.width;
      NormRow(args.x.f32() + first, args.weight, args.bias, args.width, args.kind, args.eps,
              args.out.f32() + first, args.add_to_out);
    }
  }

  void RopeAppend(const RopeAppendArgs& args) override {
    const int32_t n_all = args.n_heads + NKvVectors(args.kv_of_row) * args.n_kv_heads;
    std::vector<float> head(args.head_dim);
    for (int32_t t = 0; t < args.n_tokens; ++t) {
      if (args.norms_all_heads) {
        float* const q = args.qkv.f32() + static_cast<size_t>(t) * n_all * args.head_dim;
        const int32_t q_width = args.n_heads * args.head_dim;
        NormRow(q, args.q_norm, nullptr, q_width, args.norm_kind, args.norm_eps, q, false);
        NormRow(q + q_width, args.k_norm, nullptr, args.n_kv_heads * args.head_dim, args.norm_kind,
                args.norm_eps, q + q_width, false);
      }
      if (args.kv_of_row != KvOfRow::kNone) AppendValues(args, t);
      for (int32_t h = 0; h < n_all; ++h) {
        float* x = args.qkv.f32() + (static_cast<size_t>(t) * n_all + h) * args.head_dim;
        const bool is_q = h < args.n_heads;
        const bool is_k = !is_q && h < args.n_heads + args.n_kv_heads;
        if (!is_q && !is_k) continue;
        std::copy(x, x + args.head_dim, head.begin());
        const float* norm = is_q ? args.q_norm : args.k_norm;
        if (norm != nullptr && !args.norms_all_heads) {
          NormRow(x, norm, nullptr, args.head_dim, args.norm_kind, args.norm_eps, head.data(),
                  false);
        }
        if (args.rope != nullptr) Rotate(*args.rope, args.positions[t], head);
        if (is_q) {
          const float scale = args.query_scaling.At(args.positions[t]);
          for (int32_t i = 0; i < args.head_dim; ++i) x[i] = scale * head[i];
        } else {
          AppendHead(args, args.kv.k, t, h - args.n_heads, head);
        }
      }
    }
  }

  void HeadGemm(const HeadGemmArgs& args) override { ReferenceHeadGemm(args); }
  void LatentAppend(const LatentAppendArgs& args) override { ReferenceLatentAppend(args); }

  void Attention(const AttentionArgs& args) override {
    const bool has_latents = args.kv_of_row == KvOfRow::kLatents;
    const int32_t value_dim = has_latents ? args.value_dim : args.head_dim;
    const void* const values = has_latents ? args.kv.k : args.kv.v;
    const int32_t n_all = args.n_heads + NKvVectors(args.kv_of_row) * args.n_kv_heads;
    const int32_t group = args.n_heads / args.n_kv_heads;
    std::vector<double> scores, sum(value_dim);
    std::vector<float> kv_row(args.head_dim);
    const StepInputs& step = *args.step;
    for (int32_t s = 0; s < step.n_seqs; ++s) {
      const int32_t* table =
          step.groups[static_cast<size_t>(args.group)].block_tables +
          static_cast<size_t>(step.seq_slots[s]) * static_cast<size_t>(step.block_table_stride);
      for (int32_t t = step.seq_starts[s]; t < step.seq_starts[s + 1]; ++t) {
        const int32_t last = step.seq_positions[s] + t - step.seq_starts[s];
        const int32_t first = args.window.First(last);
        for (int32_t h = 0; h < args.n_heads; ++h) {
          const float* q = args.qkv.f32() + (static_cast<size_t>(t) * n_all + h) * args.head_dim;
          const auto place = [&](int32_t position) {
            return KvRowPlace{.dtype = args.kv.dtype,
                              .block = table[position / kBlockTokens],
                              .kv_head = h / group,
                              .token = position % kBlockTokens,
                              .n_kv_heads = args.n_kv_heads};
          };
          scores.clear();
          for (int32_t p = first; p <= last; ++p) {
            LoadKvRow(args.kv.k, place(p), kv_row);
            double score = 0;
            for (int32_t i = 0; i < args.head_dim; ++i) {
              score += static_cast<double>(q[i]) * kv_row[i];
            }
            score *= args.scale;
            if (args.softcap > 0) score = args.softcap * std::tanh(score / args.softcap);
            scores.push_back(score);
          }
          const double sink = args.sinks != nullptr ? args.sinks[h] : -INFINITY;
          const double max = std::max(sink, *std::max_element(scores.begin(), scores.end()));
          double total = std::exp(sink - max);
          std::fill(sum.begin(), sum.end(), 0.0);
          for (int32_t p = first; p <= last; ++p) {
            const double weight = std::exp(scores[p - first] - max);
            total += weight;
            LoadKvRow(values, place(p), kv_row);
            for (int32_t i = 0; i < value_dim; ++i) sum[i] += weight * kv_row[i];
          }
          float* out = args.out.f32() + (static_cast<size_t>(t) * args.n_heads + h) * value_dim;
          for (int32_t i = 0; i < value_dim; ++i) out[i] = static_cast<float>(sum[i] / total);
        }
      }
    }
  }

  void Activate(const ActivationArgs& args) override {
    for (int32_t t = 0; t < args.n_rows; ++t) {
      const float* x = args.x.f32() + static_cast<size_t>(t) * args.width * (args.gated ? 2 : 1);
      for (int32_t i = 0; i < args.width; ++i) {
        const double value = args.gated && args.clamped.limit > 0
                                 ? ClampedGluOf(x[i], x[args.width + i], args.clamped)
                                 : Activated(x[i], args.kind) *
                                       (args.gated           ? x[args.width + i]
                                        : args.up != nullptr ? args.up[t * args.up_stride + i]
                                                             : 1.0f);
        args.out.f32()[static_cast<size_t>(t) * args.width + i] = static_cast<float>(value);
      }
    }
  }

  void Route(const RouteArgs& args) override {
    std::vector<int32_t> order(static_cast<size_t>(args.n_experts));
    for (int32_t t = 0; t < args.n_tokens; ++t) {
      const float* logits = args.logits + static_cast<size_t>(t) * args.n_experts;
      const auto value = [&](int32_t e) {
        return std::isnan(logits[e]) ? -std::numeric_limits<double>::infinity() : logits[e];
      };
      std::iota(order.begin(), order.end(), 0);
      if (args.sigmoid) {
        const SigmoidScores all = SigmoidScoresOf(args, logits);
        const auto score = [&](int32_t e) { return all.scores[static_cast<size_t>(e)]; };
        const auto weight = [&](int32_t e) { return all.weights[static_cast<size_t>(e)]; };
        std::stable_sort(order.begin(), order.end(),
                         [&](int32_t a, int32_t b) { return score(a) > score(b); });
        double sum = 0;
        for (int32_t i = 0; i < args.n_used; ++i) sum += weight(order[i]);
        for (int32_t i = 0; i < args.n_used; ++i) {
          const size_t at = static_cast<size_t>(t) * args.n_used + i;
          args.experts[at] = order[i];
          args.weights[at] = static_cast<float>(weight(order[i]) * args.sigmoid->factor /
                                                (args.over_used ? std::max(sum, 1e-20) : 1));
        }
        continue;
      }
      const std::vector<bool> dropped = DroppedExperts(args, value);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return dropped[a] != dropped[b] ? dropped[b] : value(a) > value(b);
      });
      double total = 0;
      const int32_t n_summed = args.over_used ? args.n_used : args.n_experts;
      for (int32_t i = 0; i < n_summed; ++i) total += std::exp(value(order[i]) - value(order[0]));
      total /= args.softmax_groups.factor;
      for (int32_t i = 0; i < args.n_used; ++i) {
        const size_t at = static_cast<size_t>(t) * args.n_used + i;
        args.experts[at] = order[i];
        const double scale = args.expert_scales != nullptr ? args.expert_scales[order[i]] : 1.0;
        args.weights[at] =
            static_cast<float>(scale * std::exp(value(order[i]) - value(order[0])) / total);
      }
    }
  }

  size_t ExpertScratchBytes(const ExpertShape&) const override { return 0; }
  void ExpertMlp(const ExpertMlpArgs& args) override {
    const int32_t hidden = args.down.front().rows, width = args.down.front().cols;
    std::vector<float> up(static_cast<size_t>(width) * 2), act(static_cast<size_t>(width));
    std::vector<float> row(static_cast<size_t>(hidden));
    for (int32_t t = 0; t < args.n_tokens; ++t) {
      const float* const x = args.x.f32() + static_cast<size_t>(t) * hidden;
      float* const out = args.out + static_cast<size_t>(t) * hidden;
      if (args.clears_out) std::fill_n(out, hidden, 0.0f);
      const size_t first = static_cast<size_t>(t) * args.n_used;
      for (size_t e = 0; e < args.up.size(); ++e) {
        for (size_t i = first; i < first + static_cast<size_t>(args.n_used); ++i) {
          if (args.experts[i] != static_cast<int32_t>(e)) continue;
          const auto bias = [e](const float* all, int32_t n) {
            return all != nullptr ? all + e * static_cast<size_t>(n) : nullptr;
          };
          Gemm({.x = x,
                .w = &args.up[e],
                .bias = bias(args.up_bias, args.up[e].rows),
                .y = up.data(),
                .n_rows = 1});
          Activate({.x = up.data(),
                    .out = act.data(),
                    .n_rows = 1,
                    .width = width,
                    .kind = args.kind,
                    .gated = args.gated,
                    .clamped = args.clamped});
          Gemm({.x = act.data(),
                .w = &args.down[e],
                .bias = bias(args.down_bias, hidden),
                .y = row.data(),
                .n_rows = 1});
          for (int32_t h = 0; h < hidden; ++h) out[h] += args.weights[i] * row[h];
        }
      }
    }
  }

  void Recurrence(const RecurrenceArgs& args) override { ReferenceRecurrence(args); }
  void SplitGate(const SplitGateArgs& args) override { ReferenceSplitGate(args); }
  void SigmoidGate(const SigmoidGateArgs& args) override { ReferenceSigmoidGate(args); }
  void CopyStates(const CopyStatesArgs& args) override { ReferenceCopyStates(args); }

  void GatherRows(const GatherRowsArgs& args) override {
    for (int32_t r = 0; r < args.n_rows; ++r) {
      const int32_t row = args.rows != nullptr ? args.rows[r] : r;
      const float* from = args.x.f32() + static_cast<size_t>(row) * args.width;
      std::copy(from, from + args.width, args.out.f32() + static_cast<size_t>(r) * args.width);
    }
  }

  void Convert(ConstAct from, Act to, int64_t n) override {
    for (size_t i = 0; i < static_cast<size_t>(n); ++i) {
      StoreElement(to.data, to.dtype, i, LoadElement(from.data, from.dtype, i));
    }
  }

  void Scale(float* x, int64_t n, const float* factor) override {
    for (int64_t i = 0; i < n; ++i) x[i] *= *factor;
  }

  void SoftCap(float* x, int64_t n, float cap) override {
    for (int64_t i = 0; i < n; ++i) {
      x[i] = static_cast<float>(cap * std::tanh(x[i] / static_cast<double>(cap)));
    }
  }

  void Sample(const SampleArgs& args) override {
    SC_CHECK(args.rows.size() == args.out.size() && args.vocab > 0);
    const size_t vocab = static_cast<size_t>(args.vocab);
    for (size_t r = 0; r < args.rows.size(); ++r) {
      ReferenceSampleRow({args.logits + r * vocab, vocab}, args.rows[r], &args.out[r]);
    }
    KeepSampled(args);
  }

  absl::Status Synchronize() override { return absl::OkStatus(); }
  absl::Status Wait(uint64_t) override { return absl::OkStatus(); }

 private:
  static float Weight(const Matrix& matrix, int32_t row, int32_t col) {
    SC_CHECK(row >= 0 && row < matrix.rows);
    return LoadElement(matrix.buffer.data.get(), matrix.dtype,
                       static_cast<size_t>(row) * matrix.cols + col);
  }

  // Calls copy(cache, host, bytes) for the keys and for the values of each block.
  template <typename Copy>
  static void ForEachKvCopy(const KvCopyArgs& args, const Copy& copy) {
    const size_t bytes = KvBlockBytes(args.kv.dtype, args.n_kv_heads, args.head_dim, 1);
    for (const auto& [block, place] : args.copies) {
      char* host = static_cast<char*>(args.host) + place * args.place_bytes;
      for (void* const rows : {args.kv.k, args.kv.v}) {
        if (rows == nullptr) continue;
        copy(static_cast<char*>(rows) + block * bytes, host, bytes);
        host += bytes;
      }
    }
  }

  // Writes one head of keys or values of row t into `cache`, args.kv.k or args.kv.v.
  static void AppendHead(const RopeAppendArgs& args, void* cache, int32_t t, int32_t kv_head,
                         const std::vector<float>& head) {
    const int32_t slot = args.kv_slots[t];
    StoreKvRow(head,
               {.dtype = args.kv.dtype,
                .block = slot / kBlockTokens,
                .kv_head = kv_head,
                .token = slot % kBlockTokens,
                .n_kv_heads = args.n_kv_heads},
               cache);
  }

  // Before the norm and the rotation of keys, which may be the values.
  static void AppendValues(const RopeAppendArgs& args, int32_t t) {
    const int32_t n_kv_vectors = NKvVectors(args.kv_of_row);
    const int32_t n_all = args.n_heads + n_kv_vectors * args.n_kv_heads;
    const int32_t first = args.n_heads + (n_kv_vectors - 1) * args.n_kv_heads;
    for (int32_t h = 0; h < args.n_kv_heads; ++h) {
      const float* const v =
          args.qkv.f32() + (static_cast<size_t>(t) * n_all + first + h) * args.head_dim;
      std::vector<float> head(v, v + args.head_dim);
      if (args.norms_v) {
        NormRow(v, nullptr, nullptr, args.head_dim, NormKind::kRms, args.norm_eps, head.data(),
                false);
      }
      AppendHead(args, args.kv.v, t, h, head);
    }
  }

  static void Rotate(const RopeTable& rope, int32_t position, std::vector<float>& head) {
    const size_t half = static_cast<size_t>(rope.rotary_dim) / 2;
    for (size_t i = 0; i < half; ++i) {
      const double cos = rope.cos[position * half + i], sin = rope.sin[position * half + i];
      const double a = head[i], b = head[i + half];
      head[i] = static_cast<float>(a * cos - b * sin);
      head[i + half] = static_cast<float>(b * cos + a * sin);
    }
  }
};

}  // namespace

std::unique_ptr<Ops> MakeReferenceOps() { return std::make_unique<ReferenceOps>(); }

}  // namespace stagecoach::kernels
