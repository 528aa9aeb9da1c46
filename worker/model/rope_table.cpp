#include "worker/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <thread>
#include <vector>

namespace stagecoach::worker {
namespace {

// Some milliseconds of work. A table for 131,072 positions takes half a second on one thread.
constexpr size_t kAnglesPerThread = 1 << 17;

// Llama 3.1: long wavelengths are stretched, short ones are unchanged, those between are
// interpolated.
double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double context = rope.original_max_positions;
  if (wavelength >= context / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

// YaRN: frequencies with many rotations within the original context are unchanged, those with few
// are interpolated, with a linear ramp over the indexes between.
class YarnRamp {
 public:
  YarnRamp(const RopeSpec& rope, int32_t rotary_dim) {
    const auto index_of = [&](double n_turns) {
      return rotary_dim * std::log(rope.original_max_positions / (n_turns * 2 * std::numbers::pi)) /
             (2 * std::log(rope.theta));
    };
    first_ = index_of(rope.beta_fast);
    last_ = index_of(rope.beta_slow);
    if (rope.truncate) {
      first_ = std::floor(first_);
      last_ = std::ceil(last_);
    }
    first_ = std::max(first_, 0.0);
    last_ = std::min(last_, rotary_dim - 1.0);
    if (last_ == first_) last_ += 0.001;
  }
  // The interpolated share of frequency `i`, from 0 to 1.
  double At(size_t i) const {
    return std::clamp((static_cast<double>(i) - first_) / (last_ - first_), 0.0, 1.0);
  }

 private:
  double first_, last_;
};

}  // namespace

int32_t RotaryDim(const RopeSpec& rope, int32_t head_dim) {
  return rope.rotary_dim > 0 ? rope.rotary_dim : head_dim;
}

std::vector<double> RopeFrequencies(const RopeSpec& rope, int32_t head_dim, int32_t n_positions) {
  const int32_t rotary_dim = RotaryDim(rope, head_dim);
  const YarnRamp ramp(rope, rotary_dim);
  const std::vector<double>& long_rope_factors =
      n_positions > rope.original_max_positions ? rope.long_factors : rope.short_factors;
  std::vector<double> frequencies(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / rotary_dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        frequencies[i] = frequency;
        break;
      case RopeScaling::kProportional:
        frequencies[i] = static_cast<int32_t>(i) < rope.n_turning ? frequency / rope.factor : 0.0;
        break;
      case RopeScaling::kLinear:
        frequencies[i] = frequency / rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequencies[i] = Llama3Frequency(rope, frequency);
        break;
      case RopeScaling::kYarn:
        frequencies[i] = frequency * (1 - ramp.At(i) + ramp.At(i) / rope.factor);
        break;
      case RopeScaling::kLongRope:
        frequencies[i] = frequency / long_rope_factors.at(i);
        break;
    }
  }
  return frequencies;
}

HostRopeTable MakeRopeTable(const RopeSpec& rope, int32_t head_dim, int32_t n_positions) {
  const std::vector<double> frequencies = RopeFrequencies(rope, head_dim, n_positions);
  const size_t width = frequencies.size();
  const auto n_rows = static_cast<size_t>(n_positions);
  HostRopeTable table{.rotary_dim = RotaryDim(rope, head_dim),
                      .cos = std::vector<float>(n_rows * width),
                      .sin = std::vector<float>(n_rows * width)};
  const auto fill = [&](size_t begin, size_t end) {
    for (size_t row = begin; row < end; ++row) {
      for (size_t i = 0; i < width; ++i) {
        const double angle = static_cast<double>(row) * frequencies[i];
        table.cos[row * width + i] = static_cast<float>(std::cos(angle) * rope.attention_factor);
        table.sin[row * width + i] = static_cast<float>(std::sin(angle) * rope.attention_factor);
      }
    }
  };
  const size_t n_threads = std::clamp<size_t>(n_rows * width / kAnglesPerThread, 1,
                                              std::max(1u, std::thread::hardware_concurrency()));
  {
    std::vector<std::jthread> threads;
    threads.reserve(n_threads);
    for (size_t t = 0; t < n_threads; ++t) {
      threads.emplace_back(fill, n_rows * t / n_threads, n_rows * (t + 1) / n_threads);
    }
  }
  return table;
}

}  // namespace stagecoach::worker
