#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

// Two heads of four rows, of which row r is [r, r]; a vector of their numbers.
std::unique_ptr<WeightSource> Open(const TempDir& dir, std::optional<Code> quantize_to = {}) {
  std::vector<float> values;
  for (int r = 0; r < 8; ++r) values.insert(values.end(), {float(r), float(r)});
  for (int r = 0; r < 8; ++r) values.push_back(float(r));
  const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * 4);
  dir.Write("model.safetensors", SafetensorsText(R"({"q.weight": {"dtype": "F32", "shape": [8, 2],
                                             "data_offsets": [0, 64]},
                                "q.bias": {"dtype": "F32", "shape": [8],
                                           "data_offsets": [64, 96]}})",
                                                 data));
  const std::vector<TensorRequest> requests = {
      {.name = "q.weight", .rows = 8, .cols = 2, .interleaved_head = 4},
      {.name = "q.bias", .cols = 8, .is_vector = true, .interleaved_head = 4},
      {.name = "q.weight", .rows = 8, .cols = 2},
  };
  auto source = OpenCheckpoint({dir.path(), "", quantize_to}, requests);
  INFO(source.status());
  REQUIRE(source.ok());
  return *std::move(source);
}

std::vector<float> Firsts(const RowsView& view, int64_t n, int64_t cols) {
  REQUIRE(view.dtype == DType::kF32);
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<const float*>(view.data)[i * cols]);
  }
  return values;
}

TEST_CASE("rows of heads come in the model's order, whatever rows are asked for") {
  TempDir dir;
  const auto source = Open(dir);
  const std::vector<float> all = {0, 2, 1, 3, 4, 6, 5, 7};
  CHECK(Firsts(source->Rows(0, 0, 8), 8, 2) == all);
  for (int64_t first = 0; first < 8; ++first) {
    for (int64_t n = 1; n <= 8 - first; ++n) {
      CHECK(Firsts(source->Rows(0, first, n), n, 2) ==
            std::vector<float>(all.begin() + first, all.begin() + first + n));
    }
  }
  CHECK(Firsts(source->Rows(1, 0, 1), 8, 1) == all);
  CHECK(Firsts(source->Rows(2, 0, 3), 3, 2) == std::vector<float>{0, 1, 2});
}

TEST_CASE("the same for rows as stored") {
  TempDir dir;
  const auto source = Open(dir);
  float row[2];
  std::memcpy(row, source->StoredRows(0, 5, 1), sizeof(row));
  CHECK(row[0] == 6);
}

}  // namespace
}  // namespace stagecoach::worker
