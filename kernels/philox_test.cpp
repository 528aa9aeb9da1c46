#include "kernels/philox.h"

#include <catch2/catch_test_macros.hpp>
#include <cmath>

namespace stagecoach::kernels {
namespace {

// Known answers from Random123, the authors' library (kat_vectors, philox4x32 with 10 rounds).
TEST_CASE("Philox4x32-10 gives the published results") {
  CHECK(Philox4x32({0, 0, 0, 0}, {0, 0}) ==
        std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  CHECK(Philox4x32({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}) ==
        std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(Philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        std::array<uint32_t, 4>{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Draws are uniform from 0 to below 1 and differ by seed and position") {
  double sum = 0, square = 0;
  constexpr int kDraws = 100000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = UniformDraw(7, static_cast<uint64_t>(i));
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
    square += u * u;
  }
  CHECK(std::abs(sum / kDraws - 0.5) < 0.005);
  CHECK(std::abs(square / kDraws - 1.0 / 3) < 0.005);
  CHECK(UniformDraw(1, 2) != UniformDraw(2, 1));
  CHECK(UniformDraw(1, 2) == UniformDraw(1, 2));
  CHECK(UniformDraw(1, uint64_t{1} << 40) != UniformDraw(1, 0));
}

}  // namespace
}  // namespace stagecoach::kernels
