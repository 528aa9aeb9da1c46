#include "worker/model/rope_table.h"

#include <cmath>
#include <numbers>

namespace stagecoach::worker {
namespace {

// Llama 3.1: long waves are stretched, short ones left alone, those between interpolated.
double Llama3Frequency(const RopeSpec& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double context = rope.original_max_positions;
  if (wavelength > context / rope.low_freq_factor) return frequency / rope.factor;
  if (wavelength < context / rope.high_freq_factor) return frequency;
  const double smooth = (context / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<double> RopeFrequencies(const RopeSpec& rope, int32_t head_dim) {
  std::vector<double> frequencies(static_cast<size_t>(head_dim / 2));
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / head_dim);
    switch (rope.scaling) {
      case RopeScaling::kNone:
        frequencies[i] = frequency;
        break;
      case RopeScaling::kLinear:
        frequencies[i] = frequency / rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequencies[i] = Llama3Frequency(rope, frequency);
        break;
    }
  }
  return frequencies;
}

HostRopeTable MakeRopeTable(const RopeSpec& rope, int32_t head_dim, int32_t n_positions) {
  const std::vector<double> frequencies = RopeFrequencies(rope, head_dim);
  HostRopeTable table;
  table.cos.reserve(frequencies.size() * static_cast<size_t>(n_positions));
  table.sin.reserve(frequencies.size() * static_cast<size_t>(n_positions));
  for (int32_t position = 0; position < n_positions; ++position) {
    for (const double frequency : frequencies) {
      table.cos.push_back(static_cast<float>(std::cos(position * frequency)));
      table.sin.push_back(static_cast<float>(std::sin(position * frequency)));
    }
  }
  return table;
}

}  // namespace stagecoach::worker
