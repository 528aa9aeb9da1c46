#include "worker/model/decode_sizes.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>
#include <vector>

#include "common/row_sizes.h"

namespace stagecoach::worker {
namespace {

TEST_CASE("the step sizes that are autotuned cover every number of rows") {
  for (const int32_t max_decodes : {1, 8, 32, 100, 180, 256, 1000}) {
    for (const int32_t max_tokens : {1, 64, 512, 2000, 8192}) {
      const std::vector<int32_t> sizes = StepSizes(max_decodes, max_tokens);
      std::set<int32_t> tried;
      for (const int32_t size : sizes) tried.insert(RowSizeFor(size));
      CHECK(std::is_sorted(sizes.begin(), sizes.end()));
      CHECK(sizes.back() == max_tokens);
      int32_t n_left_out = 0;
      for (int32_t n = 1; n <= max_tokens; ++n) n_left_out += !tried.contains(RowSizeFor(n));
      INFO("at most " << max_decodes << " decodes and " << max_tokens << " tokens");
      CHECK(n_left_out == 0);
    }
  }
}

}  // namespace
}  // namespace stagecoach::worker
