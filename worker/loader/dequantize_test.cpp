#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "common/encoding/rows.h"
#include "worker/loader/test_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

constexpr int64_t kRows = 3, kCols = 256;

TEST_CASE("every GGUF encoding gives the same bits as the gguf package") {
  std::vector<TensorRequest> requests;
  for (const char* type : {"F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K"}) {
    for (const char* suffix : {"weight", "f32"}) {
      requests.push_back(
          {.name = fmt::format("{}.{}", type, suffix), .rows = kRows, .cols = kCols});
    }
  }
  auto source = OpenCheckpoint(TestData("all_types.gguf"), requests);
  INFO(source.status());
  REQUIRE(source.ok());
  for (size_t i = 0; i < requests.size(); i += 2) {
    INFO(requests[i].name);
    const RowsView wanted = (*source)->Rows(i + 1, 1, 2);
    REQUIRE(wanted.dtype == DType::kF32);
    std::vector<float> reference(2 * kCols), values(2 * kCols);
    std::memcpy(reference.data(), wanted.data, sizeof(float) * reference.size());
    const RowsView view = (*source)->Rows(i, 1, 2);
    DecodeRows(CodeOf(view.dtype), view.data, 2, kCols, values.data());
    CHECK(std::memcmp(values.data(), reference.data(), sizeof(float) * values.size()) == 0);
  }
}

}  // namespace
}  // namespace stagecoach::worker
