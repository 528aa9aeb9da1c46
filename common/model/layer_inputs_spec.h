// Inputs of each layer beside the hidden state, as in Gemma 4 E2B and E4B.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

// A row has `width` numbers for each layer, which come from the row's token: the token's row in a
// table, times sqrt(width), plus the projection of its embedding, times hidden_size^-0.5 and then
// normed for each layer; the sum is multiplied by kInputShare. At its end, a layer multiplies an
// activated projection of the hidden state by its numbers, projects the product back, norms it and
// adds it.
inline constexpr float kInputShare = 0.70710678f;  // sqrt(1 / 2)

struct LayerInputsSpec {
  int32_t width = 0;  // 0: the model has none
  // Prefixes as in TensorNames. L: the number of layers, P: width, H: hidden size.
  std::string embed;         // [vocabulary, L P]
  std::string project;       // [L P, H]
  std::string project_norm;  // [P]
  // Each layer has these tensors.
  std::string gate;       // [P, H]
  std::string up;         // [H, P]
  std::string post_norm;  // [H]
};

}  // namespace stagecoach
