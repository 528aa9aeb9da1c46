#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "common/encoding/encode_rows.h"
#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

constexpr int64_t kRows = 3, kCols = 128;
const std::vector<TensorRequest> kRequests = {
    {.name = "linear.weight", .rows = kRows, .cols = kCols, .is_linear = true},
    {.name = "odd.weight", .rows = kRows, .cols = 20, .is_linear = true},
    {.name = "embed.weight", .rows = kRows, .cols = kCols},
};

std::unique_ptr<WeightSource> Dummy(Code code) {
  auto source = QuantizeLinears(MakeDummyWeights(DType::kBF16, kRequests), code, kRequests);
  INFO(source.status());
  REQUIRE(source.ok());
  return *std::move(source);
}

TEST_CASE("linear layers get the code, in pieces of any size; others stay as they are") {
  for (const Code code : {Code::kFp8, Code::kInt8, Code::kInt4}) {
    const std::unique_ptr<WeightSource> plain = MakeDummyWeights(DType::kBF16, kRequests);
    const std::unique_ptr<WeightSource> source = Dummy(code);
    REQUIRE(source->encoding(0) == EncodingFor(code, DType::kBF16, kCols));
    CHECK(!source->encoding(1));
    CHECK(!source->encoding(2));

    const size_t row_bytes = RowBytes(*source->encoding(0), kCols);
    std::vector<uint8_t> expected(kRows * row_bytes);
    const RowsView rows = plain->Rows(0, 0, kRows);
    EncodeRows(*source->encoding(0), static_cast<const float*>(rows.data), kRows, kCols,
               expected.data());
    CHECK(std::memcmp(source->StoredRows(0, 0, kRows), expected.data(), expected.size()) == 0);
    CHECK(std::memcmp(source->StoredRows(0, 2, 1), expected.data() + 2 * row_bytes, row_bytes) ==
          0);
  }
}

TEST_CASE("a checkpoint is quantized while it is read, unless it is quantized already") {
  std::vector<uint16_t> values(kRows * kCols);
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = BF16FromFloat(static_cast<float>(i % 37) - 18);
  }
  const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * 2);
  TempDir dir;
  const std::vector<TensorRequest> requests = {kRequests.front()};
  dir.Write("model.safetensors",
            SafetensorsText(R"({"linear.weight": {"dtype": "BF16", "shape": [3, 128], )"
                            R"("data_offsets": [0, 768]}})",
                            data));
  const auto source = OpenCheckpoint({dir.path(), "", Code::kInt8}, requests);
  REQUIRE(source.ok());
  std::vector<float> decoded(values.size());
  DecodeRows(*(*source)->encoding(0), (*source)->StoredRows(0, 0, kRows), kRows, kCols,
             decoded.data());
  for (size_t i = 0; i < values.size(); ++i) {
    CHECK(std::abs(decoded[i] - FloatFromBF16(values[i])) < 0.1F);
  }

  auto twice = QuantizeLinears(Dummy(Code::kInt8), Code::kInt4, kRequests);
  CHECK_THAT(twice.status().ToString(), ContainsSubstring("linear.weight is quantized already"));
}

}  // namespace
}  // namespace stagecoach::worker
