#include "worker/model/decode_sizes.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

namespace stagecoach::worker {
namespace {

// The least 2^n or 3 * 2^n from 16 on that holds so many rows, as products have it.
int32_t Bucket(int32_t n_rows) {
  for (int32_t n = 1;; n *= 2) {
    if (n_rows <= n) return n;
    if (n >= 16 && n_rows <= n / 2 * 3) return n / 2 * 3;
  }
}

TEST_CASE("a step of any number of rows finds products tried out for as many") {
  for (const int32_t max_decodes : {1, 8, 32, 100, 180, 256, 1000}) {
    for (const int32_t max_tokens : {1, 64, 512, 2000, 8192}) {
      const std::vector<int32_t> sizes = StepSizes(max_decodes, max_tokens);
      std::set<int32_t> tried;
      for (const int32_t size : sizes) tried.insert(Bucket(size));
      CHECK(std::is_sorted(sizes.begin(), sizes.end()));
      CHECK(sizes.back() == max_tokens);
      int32_t n_left_out = 0;
      for (int32_t n = 1; n <= max_tokens; ++n) n_left_out += !tried.contains(Bucket(n));
      INFO("at most " << max_decodes << " decodes and " << max_tokens << " tokens");
      CHECK(n_left_out == 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::worker
