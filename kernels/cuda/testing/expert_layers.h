// Small layers of experts with packed weights, and calls of them, for tests.
#pragma once

#include <functional>
#include <random>
#include <vector>

#include "common/encoding/rows.h"
#include "kernels/cuda/testing/device_values.h"
#include "kernels/testing/stored_parts.h"

namespace stagecoach::kernels {

struct ExpertForm {
  Encoding gate, up, down;
  int32_t hidden, width;
  int raised = 0;  // MXFP4: added to the exponents of every 37th row's scales
};

inline constexpr int32_t kExperts = 3, kUsed = 2;

// A layer of experts on a device, with the same weights on each.
struct ExpertLayer {
  ExpertLayer(Ops& ops, const ExpertForm& form) : ops(ops), hidden(form.hidden), width(form.width) {
    for (uint32_t e = 0; e < kExperts; ++e) {
      up.push_back(
          Packed(form, {{width, form.gate, true}, {width, form.up, true}}, hidden, 10 * e));
      down.push_back(Packed(form, {{hidden, form.down, true}}, width, 10 * e + 5));
    }
  }

  Ops& ops;
  const int32_t hidden, width;
  std::vector<Matrix> up, down;

 private:
  Matrix Packed(const ExpertForm& form, const std::vector<MatrixPart>& parts, int32_t cols,
                uint32_t seed) {
    std::vector<StoredPart> stored = RandomParts(parts, cols, seed);
    for (StoredPart& part : stored) {
      const Encoding& encoding = part.part.encoding;
      if (form.raised == 0 || encoding.code != Code::kMxFp4) continue;
      const auto n_inputs = static_cast<size_t>(cols);
      for (size_t row = 0; row < static_cast<size_t>(part.part.rows); row += 37) {
        uint8_t* const at = part.bytes.data() + row * RowBytes(encoding, n_inputs);
        uint8_t* const scales = GroupedRowAt(encoding, n_inputs, at).scales;
        for (size_t g = 0; g < GroupCount(encoding, n_inputs); ++g) {
          scales[g] = static_cast<uint8_t>(scales[g] + form.raised);
        }
      }
    }
    return PackParts(ops, stored, cols);
  }
};

// The choices of a call's rows. Even rows do not choose the last expert; if is_skewed, no row does.
struct ExpertRows {
  explicit ExpertRows(int32_t n, bool is_skewed = false) : n(n) {
    std::mt19937 random(3);
    for (int32_t t = 0; t < n; ++t) {
      const int32_t n_chosen = is_skewed || t % 2 == 0 ? kExperts - 1 : kExperts;
      const auto first = static_cast<int32_t>(random() % static_cast<uint32_t>(n_chosen));
      experts.push_back(first);
      experts.push_back((first + 1) % n_chosen);
    }
  }

  const int32_t n;
  std::vector<int32_t> experts;
};

using CallExperts = std::function<void(const ExpertMlpArgs&)>;

// with_biases: also clamped activations, as in gpt-oss.
inline std::vector<float> RunExperts(const ExpertLayer& layer, const ExpertRows& rows, DType dtype,
                                     const CallExperts& run, bool with_biases = false) {
  Ops& ops = layer.ops;
  const auto n_values = static_cast<size_t>(rows.n) * static_cast<size_t>(layer.hidden);
  const Values x(ops, Rounded(RandomFloats(n_values, 1), dtype), dtype);
  const Values weights(ops, RandomFloats(rows.experts.size(), 2)),
      out(ops, RandomFloats(n_values, 4));
  const Values up_bias(ops, RandomFloats(static_cast<size_t>(kExperts * 2 * layer.width), 5));
  const Values down_bias(ops, RandomFloats(static_cast<size_t>(kExperts * layer.hidden), 6));
  const Ids experts(ops, rows.experts);
  const Buffer scratch =
      *ops.Allocate(ops.ExpertScratchBytes({rows.n, kExperts, kUsed, layer.hidden, layer.width}));
  ExpertMlpArgs args{.x = x,
                     .experts = experts.data(),
                     .weights = weights.f32(),
                     .up = layer.up,
                     .down = layer.down,
                     .out = out.f32(),
                     .scratch = scratch.data.get(),
                     .n_tokens = rows.n,
                     .n_used = kUsed,
                     .kind = Activation::kSilu};
  if (with_biases) {
    args.clamped = {.limit = 7, .slope = 1.702f};
    args.up_bias = up_bias.f32();
    args.down_bias = down_bias.f32();
  }
  run(args);
  return out.Get();
}
inline std::vector<float> RunExperts(const ExpertLayer& layer, const ExpertRows& rows, DType dtype,
                                     bool with_biases = false) {
  const auto run = [&](const ExpertMlpArgs& args) { layer.ops.ExpertMlp(args); };
  return RunExperts(layer, rows, dtype, run, with_biases);
}

}  // namespace stagecoach::kernels
