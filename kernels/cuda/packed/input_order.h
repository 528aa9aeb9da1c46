// Orders of the inputs of a row of x. The lanes that multiply with mma.m16n8k16, or with a
// warpgroup MMA that takes weights from registers, need pairs of inputs of which packed_layout.h
// gives the codes to other lanes. If the inputs of x are moved instead, each lane multiplies the
// codes that it has.
#pragma once

#include <cstdint>

#include "kernels/cuda/packed/packed_layout.h"

namespace stagecoach::kernels::cuda {

// Within each chunk of 32 inputs:
enum class InputOrder : uint8_t {
  kPlain,
  kByEight,  // a lane has codes of inputs 8c to 8c + 7
  kByFour,   // of 4c to 4c + 3, and of 16 more than those
};

constexpr InputOrder OrderOfLanes(PackedForm form) {
  return HasHalfScales(form) ? InputOrder::kByFour : InputOrder::kByEight;
}

// Pairs at places 4 * piece to 4 * piece + 3 of a chunk, 16 bytes, one for each c: that of c is the
// one at first + c * step in the plain order.
struct PieceOrder {
  int first, step;
};
constexpr PieceOrder OrderOfPiece(InputOrder order, int piece) {
  switch (order) {
    case InputOrder::kByEight:
      return {piece, 4};
    case InputOrder::kByFour:
      return {piece / 2 * 8 + piece % 2, 2};
    case InputOrder::kPlain:
      break;
  }
  return {4 * piece, 1};
}

}  // namespace stagecoach::kernels::cuda
