#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "common/encoding/rows.h"
#include "common/float_convert.h"
#include "common/gguf/test_gguf.h"
#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

constexpr int64_t kRows = 3, kCols = 256;

TEST_CASE("every GGUF encoding gives the same bits as the gguf package") {
  std::vector<TensorRequest> requests;
  for (const char* type :
       {"F32", "F16", "BF16", "Q8_0", "Q5_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"}) {
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

TEST_CASE("a request may be a part of a tensor, also of an encoded one") {
  constexpr uint64_t kBlock = 32;
  std::string blocks;  // of [2, 3, 32]; row r has the scale r + 1, and codes 1
  for (int r = 0; r < 6; ++r) {
    blocks += gguf::TestGguf::Raw(F16FromFloat(static_cast<float>(r + 1)));
    blocks += std::string(kBlock, 1);
  }
  gguf::TestGguf file;
  file.String("general.architecture", "qwen3moe");
  file.Tensor("experts.weight", {kBlock, 3, 2}, gguf::TensorType::kQ8_0, blocks);
  TempDir dir;
  dir.Write("m.gguf", file.Bytes());
  const std::vector<TensorRequest> requests = {{.name = "experts.weight",
                                                .rows = 3,
                                                .cols = kBlock,
                                                .shape = {2, 3, kBlock},
                                                .first_row = 3}};
  auto source = OpenCheckpoint(dir.File("m.gguf"), requests);
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK((*source)->encoding(0) == Encoding(Code::kQ8_0));
  CHECK(std::memcmp((*source)->StoredRows(0, 1, 2), blocks.data() + 4 * 34, 2 * 34) == 0);
  const float* const values = static_cast<const float*>((*source)->Rows(0, 2, 1).data);
  CHECK(std::vector<float>(values, values + kBlock) == std::vector<float>(kBlock, 6));
}

}  // namespace
}  // namespace stagecoach::worker
