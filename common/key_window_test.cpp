#include "common/key_window.h"

#include <catch2/catch_test_macros.hpp>

namespace stagecoach {
namespace {

// The first key, from what each position sees.
int32_t FirstSeen(KeyWindow window, int32_t position) {
  int32_t key = 0;
  while (!window.Sees(position, key)) ++key;
  return key;
}

TEST_CASE("without a size, a position sees all keys up to its own") {
  CHECK(KeyWindow().First(1000) == 0);
  CHECK(KeyWindow().Sees(7, 0));
  CHECK(KeyWindow().Sees(7, 7));
  CHECK_FALSE(KeyWindow().Sees(7, 8));
  CHECK(KeyWindow().EndOf(3) > INT32_MAX);
}

TEST_CASE("a sliding window moves with the position") {
  const KeyWindow window = 5;
  CHECK(window.First(4) == 0);
  CHECK(window.First(5) == 1);
  CHECK(window.First(12) == 8);
  CHECK(window.EndOf(8) == 13);
}

TEST_CASE("a chunk begins at a multiple of its size") {
  const KeyWindow window(5, /*by_chunk=*/true);
  CHECK(window.First(4) == 0);
  CHECK(window.First(5) == 5);
  CHECK(window.First(9) == 5);
  CHECK(window.First(10) == 10);
  CHECK(window.EndOf(5) == 10);
  CHECK(window.EndOf(9) == 10);
  CHECK_FALSE(window == KeyWindow(5));
}

TEST_CASE("the three functions agree") {
  for (const KeyWindow window :
       {KeyWindow(1), KeyWindow(7), KeyWindow(1, true), KeyWindow(7, true), KeyWindow(16, true)}) {
    for (int32_t position = 0; position < 50; ++position) {
      CHECK(window.First(position) == FirstSeen(window, position));
      for (int32_t key = 0; key <= position; ++key) {
        CHECK(window.Sees(position, key) == (position < window.EndOf(key)));
      }
    }
  }
}

}  // namespace
}  // namespace stagecoach
