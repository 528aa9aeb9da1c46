#include "kernels/reference/reference_recurrence.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace stagecoach::kernels {
namespace {

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// One row of one sequence.
class RowRun {
 public:
  RowRun(const RecurrenceArgs& args, float* state, int32_t row)
      : args_(args),
        shape_(args.shape),
        state_(state),
        projected_(args.projected + static_cast<size_t>(row) * shape_.projected_width()),
        mixed_(args.mixed + static_cast<size_t>(row) * shape_.n_channels()),
        out_(args.out.f32() + static_cast<size_t>(row) * shape_.values_width()) {}

  void Run() {
    for (int32_t h = 0; h < shape_.n_key_heads; ++h) {
      Mix(shape_.q_at(h), shape_.q_channel(h), shape_.key_dim);
      Mix(shape_.k_at(h), shape_.k_channel(h), shape_.key_dim);
      if (shape_.is_state_space()) continue;
      ScaleTo(1 / std::sqrt(shape_.key_dim), mixed_ + shape_.q_channel(h));
      ScaleTo(1, mixed_ + shape_.k_channel(h));
    }
    for (int32_t h = 0; h < shape_.n_value_heads; ++h) {
      Mix(shape_.v_at(h), shape_.v_channel(h), shape_.value_dim);
      Update(h);
    }
    for (int32_t first = 0; first < shape_.values_width(); first += shape_.norm_group()) {
      Finish(first);
    }
  }

 private:
  // Convolves `n` channels, which the projection has at `at`, and moves the kept columns on.
  void Mix(int32_t at, int32_t channel, int32_t n) {
    const int32_t width = shape_.conv_width;
    for (int32_t i = 0; i < n; ++i) {
      const float* const taps = args_.conv + static_cast<size_t>(channel + i) * width;
      double sum = static_cast<double>(taps[width - 1]) * projected_[at + i];
      if (args_.conv_bias != nullptr) sum += args_.conv_bias[channel + i];
      for (int32_t j = 0; j + 1 < width; ++j) {
        float& kept = state_[static_cast<size_t>(j) * shape_.n_channels() + channel + i];
        sum += static_cast<double>(taps[j]) * kept;
        kept = j + 2 < width
                   ? state_[static_cast<size_t>(j + 1) * shape_.n_channels() + channel + i]
                   : projected_[at + i];
      }
      mixed_[channel + i] = static_cast<float>(sum * Sigmoid(sum));
    }
  }

  void ScaleTo(double length, float* x) const {
    double square = 1e-6;
    for (int32_t i = 0; i < shape_.key_dim; ++i) square += static_cast<double>(x[i]) * x[i];
    for (int32_t i = 0; i < shape_.key_dim; ++i) {
      x[i] = static_cast<float>(x[i] * length / std::sqrt(square));
    }
  }

  void Update(int32_t h) {
    const int32_t key_head = h / shape_.heads_per_key();
    const float* const q = mixed_ + shape_.q_channel(key_head);
    const float* const k = mixed_ + shape_.k_channel(key_head);
    const float* const v = mixed_ + shape_.v_channel(h);
    const double a = static_cast<double>(projected_[shape_.a_at(h)]) + args_.dt_bias[h];
    const double softplus = a > 20 ? a : std::log1p(std::exp(a));
    const double decay = std::exp(-std::exp(static_cast<double>(args_.a_log[h])) * softplus);
    const bool is_delta = !shape_.is_state_space();
    const double beta = is_delta ? Sigmoid(projected_[shape_.b_at(h)]) : softplus;
    float* const matrix = state_ + shape_.conv_elements() +
                          static_cast<size_t>(h) * shape_.key_dim * shape_.value_dim;
    for (int32_t c = 0; c < shape_.value_dim; ++c) {
      const auto at = [&](int32_t key) -> float& { return matrix[key * shape_.value_dim + c]; };
      double known = 0, out = is_delta ? 0 : static_cast<double>(args_.skip[h]) * v[c];
      for (int32_t key = 0; is_delta && key < shape_.key_dim; ++key) {
        known += decay * at(key) * k[key];
      }
      const double delta = beta * (v[c] - known);
      for (int32_t key = 0; key < shape_.key_dim; ++key) {
        at(key) = static_cast<float>(decay * at(key) + k[key] * delta);
        out += static_cast<double>(at(key)) * q[key];
      }
      out_[h * shape_.value_dim + c] = static_cast<float>(out);
    }
  }

  // Norms and gates the elements of a norm from `first` on.
  void Finish(int32_t first) {
    const int32_t n = shape_.norm_group();
    const bool gates_first = shape_.is_state_space();
    double square = 0;
    const auto gate = [&](int32_t i) {
      const int32_t head = i / shape_.value_dim;
      const double z = projected_[shape_.z_at(head) + i % shape_.value_dim];
      return z * Sigmoid(z);
    };
    for (int32_t i = first; i < first + n; ++i) {
      const double value = out_[i] * (gates_first ? gate(i) : 1);
      square += value * value;
    }
    const double scale = 1 / std::sqrt(square / n + args_.norm_eps);
    for (int32_t i = first; i < first + n; ++i) {
      const double weight = args_.norm[i % shape_.norm_width()];
      out_[i] = static_cast<float>(out_[i] * scale * weight * gate(i));
    }
  }

  const RecurrenceArgs& args_;
  const RecurrentShape& shape_;
  float* const state_;
  const float* const projected_;
  float* const mixed_;
  float* const out_;
};

}  // namespace

void ReferenceRecurrence(const RecurrenceArgs& args) {
  const StepInputs& step = *args.step;
  const int64_t n = args.shape.state_elements();
  for (int32_t s = 0; s < step.n_seqs; ++s) {
    float* const state = args.states + step.seq_slots[s] * n;
    if (step.seq_positions[s] == 0) std::fill_n(state, n, 0.0f);
    for (int32_t t = step.seq_starts[s]; t < step.seq_starts[s + 1]; ++t) {
      RowRun(args, state, t).Run();
      for (const StateSave& save : args.saves) {
        if (save.seq != s || t + 1 != step.seq_starts[s] + save.n_rows) continue;
        std::copy_n(state, n, args.states + save.to * n);
      }
    }
  }
}

void ReferenceSplitGate(const SplitGateArgs& args) {
  const int32_t dim = args.head_dim, n_kv = 2 * args.n_kv_heads * dim;
  const float* from = args.projected;
  float *qkv = args.qkv.f32(), *gate = args.gate;
  for (int32_t t = 0; t < args.n_tokens; ++t) {
    for (int32_t h = 0; h < args.n_heads; ++h, from += 2 * dim) {
      qkv = std::copy_n(from, dim, qkv);
      gate = std::copy_n(from + dim, dim, gate);
    }
    qkv = std::copy_n(from, n_kv, qkv);
    from += n_kv;
  }
}

void ReferenceSigmoidGate(const SigmoidGateArgs& args) {
  float* const x = args.x.f32();
  for (int64_t i = 0; i < int64_t{args.n_rows} * args.width; ++i) {
    const int64_t row = i / args.width;
    const int64_t of_row = args.chosen != nullptr ? args.chosen[row] : 0;
    const float gate = args.gate[args.is_by_row() ? row * args.gate_width + of_row : i];
    x[i] = static_cast<float>(x[i] * Sigmoid(gate));
  }
}

void ReferenceCopyStates(const CopyStatesArgs& args) {
  for (const StateCopy& copy : args.copies) {
    std::copy_n(args.states + copy.from * args.n_elements, args.n_elements,
                args.states + copy.to * args.n_elements);
  }
}

}  // namespace stagecoach::kernels
