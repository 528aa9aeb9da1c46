// Layer variants that the kernels know as well.
#pragma once

#include <cstdint>

namespace stagecoach {

enum class NormKind : uint8_t {
  kLayerNorm,  // (x - mean) / sqrt(var + eps) * w + b
  kRms,        // x / sqrt(mean(x^2) + eps) * w
  kRmsPlusOne  // the same with (1 + w): Gemma
};

enum class Activation : uint8_t { kRelu, kGelu, kGeluTanh, kSilu };

}  // namespace stagecoach
