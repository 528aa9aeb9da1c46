#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/recurrence.cpp"
// clang-format off
#include <hwy/foreach_target.h>  // before highway.h
#include <hwy/highway.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "common/check.h"
#include "kernels/cpu/cpu_kernel.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/norm-inl.h"
#include "kernels/cpu/sigmoid-inl.h"

HWY_BEFORE_NAMESPACE();
namespace stagecoach::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Columns of a head's matrix that one task updates. A block of 128 rows then stays in the L1 cache
// from one token to the next. The blocks of a matrix follow one another in a state, each row by
// row.
constexpr size_t kBlockColumns = 32;

// The rows of one sequence.
struct Rows {
  size_t begin, end;
  float* state;
  // Receives the state as it is before row save_end. Null: none.
  float* saved;
  size_t save_end;
};

Rows RowsOf(const RecurrenceArgs& args, size_t sequence) {
  const StepInputs& step = *args.step;
  const auto state = [&args](int32_t number) {
    return args.states + number * args.shape.state_elements();
  };
  Rows rows{.begin = static_cast<size_t>(step.seq_starts[sequence]),
            .end = static_cast<size_t>(step.seq_starts[sequence + 1]),
            .state = state(step.seq_slots[sequence]),
            .saved = nullptr,
            .save_end = 0};
  const auto save = std::lower_bound(
      args.saves.begin(), args.saves.end(), sequence,
      [](const StateSave& one, size_t wanted) { return static_cast<size_t>(one.seq) < wanted; });
  if (save != args.saves.end() && static_cast<size_t>(save->seq) == sequence) {
    rows.saved = state(save->to);
    rows.save_end = rows.begin + static_cast<size_t>(save->n_rows);
  }
  return rows;
}

// A head of q, k or v: consecutive channels, and where the projection has them.
struct Head {
  size_t channel, at, width;
  float scale;  // of the result at length 1; 0: the result keeps its length
};

Head HeadOf(const RecurrentShape& shape, size_t index) {
  const auto keys = static_cast<size_t>(shape.n_key_heads);
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  if (index < 2 * keys) {
    const bool is_q = index < keys;
    const auto head = static_cast<int32_t>(index % keys);
    const float length = is_q ? 1.0f / std::sqrt(static_cast<float>(key_dim)) : 1.0f;
    return {.channel = static_cast<size_t>(is_q ? shape.q_channel(head) : shape.k_channel(head)),
            .at = static_cast<size_t>(is_q ? shape.q_at(head) : shape.k_at(head)),
            .width = key_dim,
            .scale = shape.is_state_space() ? 0 : length};
  }
  const auto head = static_cast<int32_t>(index - 2 * keys);
  return {.channel = static_cast<size_t>(shape.v_channel(head)),
          .at = static_cast<size_t>(shape.v_at(head)),
          .width = value_dim,
          .scale = 0};
}

// out[i] = silu(bias[i] + the sum over j of taps[j][i] * columns[j][i]); the oldest column comes
// first. taps: [n, width]; bias: [width] or null
template <size_t kLanes>
HWY_INLINE size_t ConvSpan(const float* taps, const float* bias, const float* const* columns,
                           size_t n, float* out, size_t i, size_t width) {
  const hn::CappedTag<float, kLanes> d;
  for (; i + hn::Lanes(d) <= width; i += hn::Lanes(d)) {
    auto sum = hn::Mul(hn::LoadU(d, taps + i), hn::LoadU(d, columns[0] + i));
    for (size_t j = 1; j < n; ++j) {
      sum = hn::MulAdd(hn::LoadU(d, taps + j * width + i), hn::LoadU(d, columns[j] + i), sum);
    }
    if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, bias + i));
    hn::StoreU(hn::Mul(sum, Sigmoid(d, sum)), d, out + i);
  }
  return i;
}

template <size_t kLanes>
HWY_INLINE size_t ScaleSpan(float* x, float scale, size_t i, size_t width) {
  const hn::CappedTag<float, kLanes> d;
  for (; i + hn::Lanes(d) <= width; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), d, x + i);
  }
  return i;
}

// Fills one head of `mixed` for all rows of a sequence, and moves the state's columns on.
void MixHead(const RecurrenceArgs& args, const Rows& rows, const Head& head) {
  constexpr float kEps = 1e-6f;  // of the scaling to length 1
  const auto n_channels = static_cast<size_t>(args.shape.n_channels());
  const auto projected_width = static_cast<size_t>(args.shape.projected_width());
  const auto n_taps = static_cast<size_t>(args.shape.conv_width);
  const size_t width = head.width, n_kept = n_taps - 1;
  std::vector<float> taps(n_taps * width);
  for (size_t i = 0; i < width; ++i) {
    for (size_t j = 0; j < n_taps; ++j) {
      taps[j * width + i] = args.conv[(head.channel + i) * n_taps + j];
    }
  }
  // The kept columns before the first row.
  std::vector<float> kept(n_kept * width);
  for (size_t j = 0; j < n_kept; ++j) {
    std::copy_n(rows.state + j * n_channels + head.channel, width, kept.data() + j * width);
  }
  const auto column = [&](size_t i) {  // counted from the first kept one
    return i < n_kept ? kept.data() + i * width
                      : args.projected + (rows.begin + i - n_kept) * projected_width + head.at;
  };
  const float* const bias = args.conv_bias != nullptr ? args.conv_bias + head.channel : nullptr;
  std::vector<const float*> columns(n_taps);
  const size_t n_rows = rows.end - rows.begin;
  for (size_t t = 0; t < n_rows; ++t) {
    for (size_t j = 0; j < n_taps; ++j) columns[j] = column(t + j);
    float* const out = args.mixed + (rows.begin + t) * n_channels + head.channel;
    const size_t done = ConvSpan<16>(taps.data(), bias, columns.data(), n_taps, out, 0, width);
    ConvSpan<1>(taps.data(), bias, columns.data(), n_taps, out, done, width);
    if (head.scale == 0) continue;
    const float scale = head.scale / std::sqrt(SumOf(out, width, AddSquareTo{0}) + kEps);
    ScaleSpan<1>(out, scale, ScaleSpan<16>(out, scale, 0, width), width);
  }
  const auto keep = [&](size_t n_done, float* state) {
    for (size_t j = 0; j < n_kept; ++j) {
      std::copy_n(column(n_done + j), width, state + j * n_channels + head.channel);
    }
  };
  keep(n_rows, rows.state);
  if (rows.saved != nullptr) keep(rows.save_end - rows.begin, rows.saved);
}

// Replaces a by dt in all rows of a sequence; in a delta net b by sigmoid(b), and a by the decay of
// the state.
void PrepareRates(const RecurrenceArgs& args, const Rows& rows, size_t value_head) {
  const auto head = static_cast<int32_t>(value_head);
  const float rate = std::exp(args.a_log[value_head]);
  for (size_t t = rows.begin; t < rows.end; ++t) {
    float* const row = args.projected + t * static_cast<size_t>(args.shape.projected_width());
    float& a = row[args.shape.a_at(head)];
    const float x = a + args.dt_bias[value_head];
    a = x > 20.0f ? x : std::log1p(std::exp(x));
    if (args.shape.is_state_space()) continue;
    float& b = row[args.shape.b_at(head)];
    b = 1.0f / (1.0f + std::exp(-b));
    a = std::exp(-rate * a);
  }
}

// One token's update of some columns of a matrix [n_keys, stride].
struct Update {
  size_t n_keys, stride;
  const float *q, *k;  // [n_keys]
  float beta, decay;
  bool is_delta;  // beta scales what the state does not know of v yet; else all of v
  float skip;     // unless is_delta: of v in the output
};

// Updates columns [c, c + kVectors * lanes) and computes their outputs. The sums over keys have
// four parts, so that additions do not wait for one another.
template <size_t kLanes, size_t kVectors>
HWY_INLINE void UpdateColumns(const Update& u, float* matrix, const float* v, float* out,
                              size_t c) {
  const hn::CappedTag<float, kLanes> d;
  using V = hn::Vec<decltype(d)>;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kParts = 4;
  const size_t n_whole = u.n_keys / kParts * kParts;
  V sum[kVectors][kParts];
  const auto clear = [&]() HWY_ATTR {
    for (size_t i = 0; i < kVectors; ++i) {
      for (size_t p = 0; p < kParts; ++p) sum[i][p] = hn::Zero(d);
    }
  };
  const auto total = [&](size_t i) HWY_ATTR {
    return hn::Add(hn::Add(sum[i][0], sum[i][1]), hn::Add(sum[i][2], sum[i][3]));
  };
  float* const at = matrix + c;
  const V decay = hn::Set(d, u.decay), beta = hn::Set(d, u.beta);
  V delta[kVectors];
  const auto recall = [&](size_t key, size_t part) HWY_ATTR {
    const V k = hn::Set(d, u.k[key]);
    for (size_t i = 0; i < kVectors; ++i) {
      sum[i][part] = hn::MulAdd(hn::LoadU(d, at + key * u.stride + i * lanes), k, sum[i][part]);
    }
  };
  if (u.is_delta) {
    clear();
    for (size_t key = 0; key < n_whole; key += kParts) {
      for (size_t p = 0; p < kParts; ++p) recall(key + p, p);
    }
    for (size_t key = n_whole; key < u.n_keys; ++key) recall(key, 0);
  }
  for (size_t i = 0; i < kVectors; ++i) {
    V unknown = hn::LoadU(d, v + c + i * lanes);
    if (u.is_delta) unknown = hn::Sub(unknown, hn::Mul(decay, total(i)));
    delta[i] = hn::Mul(beta, unknown);
  }
  clear();
  const auto learn = [&](size_t key, size_t part) HWY_ATTR {
    const V k = hn::Set(d, u.k[key]), q = hn::Set(d, u.q[key]);
    for (size_t i = 0; i < kVectors; ++i) {
      float* const place = at + key * u.stride + i * lanes;
      const V m = hn::MulAdd(k, delta[i], hn::Mul(decay, hn::LoadU(d, place)));
      hn::StoreU(m, d, place);
      sum[i][part] = hn::MulAdd(m, q, sum[i][part]);
    }
  };
  for (size_t key = 0; key < n_whole; key += kParts) {
    for (size_t p = 0; p < kParts; ++p) learn(key + p, p);
  }
  for (size_t key = n_whole; key < u.n_keys; ++key) learn(key, 0);
  for (size_t i = 0; i < kVectors; ++i) {
    V sums = total(i);
    if (!u.is_delta) {
      sums = hn::MulAdd(hn::Set(d, u.skip), hn::LoadU(d, v + c + i * lanes), sums);
    }
    hn::StoreU(sums, d, out + c + i * lanes);
  }
}

// Runs all rows of a sequence through one block of a head's matrix.
void RunBlock(const RecurrenceArgs& args, const Rows& rows, size_t value_head, size_t block) {
  const RecurrentShape& shape = args.shape;
  const auto head = static_cast<int32_t>(value_head);
  const auto n_channels = static_cast<size_t>(shape.n_channels());
  const auto key_dim = static_cast<size_t>(shape.key_dim);
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  const size_t first = block * kBlockColumns, n = std::min(kBlockColumns, value_dim - first);
  const int32_t key_head = head / shape.heads_per_key();
  const bool is_delta = !shape.is_state_space();
  const float rate = std::exp(args.a_log[value_head]);
  const size_t matrix_at =
      static_cast<size_t>(shape.conv_elements()) + (value_head * value_dim + first) * key_dim;
  float* const matrix = rows.state + matrix_at;
  const size_t lanes = hn::Lanes(hn::CappedTag<float, 16>());
  for (size_t t = rows.begin; t < rows.end; ++t) {
    const float* const mixed = args.mixed + t * n_channels;
    const float* const projected =
        args.projected + t * static_cast<size_t>(shape.projected_width());
    const float a = projected[shape.a_at(head)];
    const Update update{.n_keys = key_dim,
                        .stride = n,
                        .q = mixed + shape.q_channel(key_head),
                        .k = mixed + shape.k_channel(key_head),
                        .beta = is_delta ? projected[shape.b_at(head)] : a,
                        .decay = is_delta ? a : std::exp(-rate * a),
                        .is_delta = is_delta,
                        .skip = is_delta ? 0 : args.skip[value_head]};
    const float* const v = mixed + static_cast<size_t>(shape.v_channel(head)) + first;
    float* const out = args.out.f32() + t * static_cast<size_t>(shape.values_width()) +
                       value_head * value_dim + first;
    size_t c = 0;
    for (; c + 2 * lanes <= n; c += 2 * lanes) UpdateColumns<16, 2>(update, matrix, v, out, c);
    for (; c + lanes <= n; c += lanes) UpdateColumns<16, 1>(update, matrix, v, out, c);
    for (; c < n; ++c) UpdateColumns<1, 1>(update, matrix, v, out, c);
    if (t + 1 == rows.save_end) std::copy_n(matrix, key_dim * n, rows.saved + matrix_at);
  }
}

template <size_t kLanes>
HWY_INLINE size_t GateSpan(float* x, const float* z, size_t i, size_t n) {
  const hn::CappedTag<float, kLanes> d;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    const auto gate = hn::LoadU(d, z + i);
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Mul(gate, Sigmoid(d, gate))), d, x + i);
  }
  return i;
}

// Norms and gates all heads of a row.
void FinishRow(const RecurrenceArgs& args, size_t t) {
  const RecurrentShape& shape = args.shape;
  const auto value_dim = static_cast<size_t>(shape.value_dim);
  const auto norm_group = static_cast<size_t>(shape.norm_group());
  const auto norm_width = static_cast<size_t>(shape.norm_width());
  const auto width = static_cast<size_t>(shape.values_width());
  float* const out = args.out.f32() + t * width;
  const float* const projected = args.projected + t * static_cast<size_t>(shape.projected_width());
  const auto norm = [&]() HWY_ATTR {
    for (size_t first = 0; first < width; first += norm_group) {
      NormRow(out + first, args.norm + first % norm_width, nullptr, norm_group, NormKind::kRms,
              args.norm_eps, out + first, false);
    }
  };
  if (!shape.is_state_space()) norm();
  for (int32_t head = 0; head < shape.n_value_heads; ++head) {
    float* const of_head = out + static_cast<size_t>(head) * value_dim;
    const float* const z = projected + shape.z_at(head);
    GateSpan<1>(of_head, z, GateSpan<16>(of_head, z, 0, value_dim), value_dim);
  }
  if (shape.is_state_space()) norm();
}

absl::Status Recurrence(const RecurrenceArgs& args, CpuContext& context) {
  const RecurrentShape& shape = args.shape;
  const auto n_seqs = static_cast<size_t>(args.step->n_seqs);
  const auto n_keys = 2 * static_cast<size_t>(shape.n_key_heads);
  const auto n_values = static_cast<size_t>(shape.n_value_heads);
  const size_t n_heads = n_keys + n_values;
  const size_t n_blocks =
      (static_cast<size_t>(shape.value_dim) + kBlockColumns - 1) / kBlockColumns;
  const auto matrix_elements =
      static_cast<size_t>(shape.key_dim) * static_cast<size_t>(shape.value_dim);
  context.pool->Run(n_seqs * n_heads, [&](size_t task, int) {
    const size_t sequence = task / n_heads, index = task % n_heads;
    const Rows rows = RowsOf(args, sequence);
    const Head head = HeadOf(shape, index);
    if (args.step->seq_positions[sequence] == 0) {
      for (int32_t j = 0; j + 1 < shape.conv_width; ++j) {
        const size_t column = static_cast<size_t>(j) * static_cast<size_t>(shape.n_channels());
        std::fill_n(rows.state + column + head.channel, head.width, 0.0f);
      }
      if (index >= n_keys) {
        std::fill_n(rows.state + shape.conv_elements() +
                        static_cast<int64_t>((index - n_keys) * matrix_elements),
                    matrix_elements, 0.0f);
      }
    }
    MixHead(args, rows, head);
    if (index >= n_keys) PrepareRates(args, rows, index - n_keys);
  });
  context.pool->Run(n_seqs * n_values * n_blocks, [&](size_t task, int) {
    const size_t block = task % n_blocks, head = task / n_blocks % n_values;
    RunBlock(args, RowsOf(args, task / n_blocks / n_values), head, block);
  });
  RunPieces(*context.pool, static_cast<size_t>(args.step->n_tokens),
            static_cast<size_t>(shape.values_width()), [&](size_t begin, size_t end) {
              for (size_t t = begin; t < end; ++t) FinishRow(args, t);
            });
  return absl::OkStatus();
}

template <size_t kLanes>
HWY_INLINE size_t SigmoidGateSpan(float* x, const float* gate, size_t i, size_t n) {
  const hn::CappedTag<float, kLanes> d;
  for (; i + hn::Lanes(d) <= n; i += hn::Lanes(d)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), Sigmoid(d, hn::LoadU(d, gate + i))), d, x + i);
  }
  return i;
}

absl::Status SigmoidGate(const SigmoidGateArgs& args, CpuContext& context) {
  SC_CHECK(args.is_by_row() || args.gate_width == args.width);
  const auto width = static_cast<size_t>(args.width);
  RunPieces(*context.pool, static_cast<size_t>(args.n_rows), width,
            [&](size_t begin, size_t end) HWY_ATTR {
              for (size_t row = begin; row < end; ++row) {
                float* const x = args.x.f32() + row * width;
                if (args.is_by_row()) {
                  const hn::CappedTag<float, 1> d;
                  const float* gate = args.gate + row * static_cast<size_t>(args.gate_width);
                  if (args.chosen != nullptr) gate += args.chosen[row];
                  const float factor = hn::GetLane(Sigmoid(d, hn::LoadU(d, gate)));
                  ScaleSpan<1>(x, factor, ScaleSpan<16>(x, factor, 0, width), width);
                } else {
                  const float* const gate = args.gate + row * width;
                  SigmoidGateSpan<1>(x, gate, SigmoidGateSpan<16>(x, gate, 0, width), width);
                }
              }
            });
  return absl::OkStatus();
}

}  // namespace HWY_NAMESPACE
}  // namespace stagecoach::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace stagecoach::kernels {

HWY_EXPORT(Recurrence);
HWY_EXPORT(SigmoidGate);

CpuKernel<RecurrenceArgs> ChooseRecurrence() { return &HWY_DYNAMIC_DISPATCH(Recurrence); }
CpuKernel<SigmoidGateArgs> ChooseSigmoidGate() { return &HWY_DYNAMIC_DISPATCH(SigmoidGate); }

}  // namespace stagecoach::kernels
#endif
