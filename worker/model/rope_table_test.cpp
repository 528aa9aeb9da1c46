#include "worker/model/rope_table.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <numbers>

namespace stagecoach::worker {
namespace {

using Catch::Approx;

TEST_CASE("plain and linear frequencies") {
  RopeSpec rope{.theta = 10000.0};
  const std::vector<double> plain = RopeFrequencies(rope, 8, 64);
  REQUIRE(plain.size() == 4);
  CHECK(plain[0] == 1.0);
  CHECK(plain[1] == Approx(0.1));
  CHECK(plain[3] == Approx(0.001));
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  CHECK(RopeFrequencies(rope, 8, 64)[1] == Approx(0.025));
}

TEST_CASE("proportional frequencies are those of the whole head, and the later ones are 0") {
  const RopeSpec rope{.theta = 10000.0,
                      .rotary_dim = 8,
                      .scaling = RopeScaling::kProportional,
                      .factor = 2,
                      .n_turning = 2};
  const std::vector<double> frequencies = RopeFrequencies(rope, 4, 64);
  REQUIRE(frequencies.size() == 4);
  CHECK(frequencies[0] == 0.5);
  CHECK(frequencies[1] == Approx(0.05));
  CHECK(frequencies[2] == 0);
  CHECK(frequencies[3] == 0);
}

TEST_CASE("llama3 keeps high frequencies, scales low ones and interpolates between them") {
  const RopeSpec rope{.theta = 500000.0,
                      .scaling = RopeScaling::kLlama3,
                      .factor = 8.0,
                      .low_freq_factor = 1.0,
                      .high_freq_factor = 4.0,
                      .original_max_positions = 8192};
  const RopeSpec plain{.theta = 500000.0};
  const std::vector<double> scaled = RopeFrequencies(rope, 128, 64);
  const std::vector<double> before = RopeFrequencies(plain, 128, 64);
  int n_between = 0;
  for (size_t i = 0; i < scaled.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / before[i];
    if (wavelength < 2048) {
      CHECK(scaled[i] == before[i]);
    } else if (wavelength > 8192) {
      CHECK(scaled[i] == Approx(before[i] / 8));
    } else {
      ++n_between;
      CHECK(scaled[i] < before[i]);
      CHECK(scaled[i] > before[i] / 8);
    }
  }
  CHECK(n_between > 0);
}

TEST_CASE("YaRN keeps high frequencies and interpolates low ones") {
  const RopeSpec rope{
      .theta = 1e6, .scaling = RopeScaling::kYarn, .factor = 4.0, .original_max_positions = 32768};
  const std::vector<double> scaled = RopeFrequencies(rope, 128, 64);
  const std::vector<double> before = RopeFrequencies({.theta = 1e6}, 128, 64);
  // floor and ceil of 128 ln(32768 / (2 pi n)) / (2 ln theta) for n = 32 and n = 1.
  constexpr size_t kFirst = 23, kLast = 40;
  for (size_t i = 0; i < scaled.size(); ++i) {
    const double ratio = scaled[i] / before[i];
    if (i <= kFirst) {
      CHECK(ratio == Approx(1));
    } else if (i >= kLast) {
      CHECK(ratio == Approx(0.25));
    } else {
      CHECK(ratio == Approx(1 - 0.75 * static_cast<double>(i - kFirst) / (kLast - kFirst)));
    }
  }
}

TEST_CASE("LongRoPE's factors depend on the maximum sequence length, also for partial RoPE") {
  const RopeSpec rope{.theta = 10000.0,
                      .rotary_dim = 4,
                      .scaling = RopeScaling::kLongRope,
                      .original_max_positions = 64,
                      .attention_factor = 1.5,
                      .short_factors = {1, 2},
                      .long_factors = {4, 10}};
  CHECK(RopeFrequencies(rope, 8, 64) == std::vector<double>{1, 0.005});
  CHECK(RopeFrequencies(rope, 8, 65) == std::vector<double>{0.25, 0.001});
  const HostRopeTable table = MakeRopeTable(rope, 8, 3);
  CHECK(table.rotary_dim == 4);
  REQUIRE(table.cos.size() == 6);
  CHECK(table.cos[0] == 1.5f);
  CHECK(table.sin[4] == Approx(1.5 * std::sin(2.0)));
}

TEST_CASE("the table contains cos and sin by position") {
  const HostRopeTable table = MakeRopeTable(RopeSpec{.theta = 10000.0}, 4, 3);
  REQUIRE(table.cos.size() == 6);
  CHECK(table.cos[0] == 1.0f);
  CHECK(table.sin[0] == 0.0f);
  CHECK(table.cos[4] == Approx(std::cos(2.0)));
  CHECK(table.sin[5] == Approx(std::sin(0.02)));
}

}  // namespace
}  // namespace stagecoach::worker
