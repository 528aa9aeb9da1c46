#include "worker/loader/quantized_matrix.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

// A file of tensors.
class TestFile {
 public:
  template <typename T>
  TestFile& Add(std::string_view name, std::string_view dtype, std::string_view shape,
                const std::vector<T>& values) {
    const size_t begin = data_.size();
    data_.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    header_ += fmt::format(R"({}"{}": {{"dtype": "{}", "shape": {}, "data_offsets": [{}, {}]}})",
                           header_.empty() ? "" : ", ", name, dtype, shape, begin, data_.size());
    return *this;
  }
  absl::StatusOr<std::unique_ptr<WeightSource>> Open(const Quantization& quantization, int64_t rows,
                                                     int64_t cols) {
    Write();
    const TensorRequest request{
        .name = "a.weight", .rows = rows, .cols = cols, .quantization = quantization};
    return OpenCheckpoint(dir_.path(), {&request, 1});
  }

  void Write() { dir_.Write("model.safetensors", SafetensorsText("{" + header_ + "}", data_)); }

  std::string path() const { return dir_.path(); }

 private:
  TempDir dir_;
  std::string header_, data_;
};

std::vector<float> Values(WeightSource& source, int64_t first_row, int64_t n_rows, int64_t cols) {
  const RowsView view = source.Rows(0, first_row, n_rows);
  CHECK(view.dtype == DType::kF32);
  const float* const data = static_cast<const float*>(view.data);
  return {data, data + n_rows * cols};
}

constexpr Quantization kFp8{.method = QuantMethod::kFp8};
const std::vector<uint8_t> kOneToFour = {0x38, 0x40, 0x44, 0x48};  // 1, 2, 3, 4 in e4m3

TEST_CASE("FP8 has one scale, one per row, or one per block") {
  {
    TestFile file;
    file.Add("a.weight", "F8_E4M3", "[2, 2]", kOneToFour)
        .Add<float>("a.weight_scale", "F32", "[]", {0.5f})
        .Add<float>("a.input_scale", "F32", "[]", {0.1f});
    auto source = file.Open(kFp8, 2, 2);
    INFO(source.status());
    REQUIRE(source.ok());
    CHECK((*source)->encoding(0)->rows_share_scales);
    CHECK(Values(**source, 1, 1, 2) == std::vector<float>{1.5f, 2});
  }
  TestFile file;
  file.Add("a.weight", "F8_E4M3", "[2, 2]", kOneToFour)
      .Add<float>("a.weight_scale_inv", "F32", "[2, 1]", {2, 4});
  auto source = file.Open(kFp8, 2, 2);
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK(!(*source)->encoding(0)->rows_share_scales);
  CHECK(Values(**source, 0, 2, 2) == std::vector<float>{2, 4, 12, 16});
}

TEST_CASE("a matrix without a usable scale is refused") {
  TestFile none, wrong, huge;
  none.Add("a.weight", "F8_E4M3", "[2, 2]", kOneToFour);
  CHECK_THAT(std::string(none.Open(kFp8, 2, 2).status().message()),
             ContainsSubstring("a.weight: has dtype F8_E4M3"));
  wrong.Add("a.weight", "F8_E4M3", "[1, 4]", kOneToFour)
      .Add<float>("a.weight_scale", "F32", "[1, 3]", {1, 1, 1});
  CHECK_THAT(std::string(wrong.Open(kFp8, 1, 4).status().message()),
             ContainsSubstring("a.weight_scale: has shape [1, 3], which does not divide"));
  huge.Add("a.weight", "F8_E4M3", "[2, 2]", kOneToFour)
      .Add<float>("a.weight_scale", "F32", "[1]", {1e9f});
  CHECK_THAT(std::string(huge.Open(kFp8, 2, 2).status().message()),
             ContainsSubstring("a.weight_scale: has a scale that is not a number up to 128"));
}

TEST_CASE("FP8 of all experts in one tensor has scales of each expert, or of its blocks") {
  // Two experts with gate and up of two rows each.
  std::vector<uint8_t> codes;
  for (int i = 0; i < 4; ++i) codes.insert(codes.end(), kOneToFour.begin(), kOneToFour.end());
  codes[12] = 0x4a;  // 5: the first number of `up` of the last expert
  const auto request = [](int64_t part) {
    return TensorRequest{.name = "e.1.up.weight",
                         .rows = 2,
                         .cols = 2,
                         .quantization = kFp8,
                         .fused_name = "e.gate_up",
                         .fused_shape = {2, 4, 2},
                         .fused_first_row = 4 + 2 * part};
  };
  const auto open = [&](TestFile& file, std::string_view shape, const std::vector<float>& scales) {
    file.Add("e.gate_up", "F8_E4M3", "[2, 4, 2]", codes)
        .Add("e.gate_up_scale_inv", "F32", shape, scales)
        .Add<float>("e.gate_up_activation_scale", "F32", "[2]", {1, 1})
        .Write();
    const std::vector<TensorRequest> requests = {request(1), request(0)};
    return OpenCheckpoint(file.path(), requests);
  };
  TestFile whole, blocks, flat, none;
  auto source = open(whole, "[2, 1, 1]", {8, 0.5f});
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK((*source)->encoding(0).value_or(Code::kF32).rows_share_scales);
  CHECK(Values(**source, 0, 2, 2) == std::vector<float>{2.5f, 1, 1.5f, 2});
  source = open(blocks, "[2, 2, 1]", {8, 8, 2, 4});
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK(Values(**source, 0, 2, 2) == std::vector<float>{20, 8, 12, 16});
  CHECK_THAT(std::string(open(flat, "[2]", {1, 1}).status().message()),
             ContainsSubstring("has shape [2], but 2 experts have scales in three dimensions"));
  none.Add("e.gate_up", "F8_E4M3", "[2, 4, 2]", codes).Write();
  const TensorRequest without = request(0);
  CHECK_THAT(std::string(OpenCheckpoint(none.path(), {&without, 1}).status().message()),
             ContainsSubstring("e.gate_up: has dtype F8_E4M3"));
}

TestFile& AddGptq(TestFile& file, const std::vector<int32_t>& groups) {
  // Row 0 has the codes 0 to 15, the other rows 9. Both groups have scale 1; the zeros are 8 in the
  // first group, and 4 in the second.
  std::vector<uint32_t> codes(16, 0x99999999);
  codes[0] = 0x76543210;
  codes[8] = 0xfedcba98;
  return file.Add("a.qweight", "I32", "[2, 8]", codes)
      .Add<uint32_t>("a.qzeros", "I32", "[2, 1]", {0x77777777, 0x33333333})
      .Add("a.scales", "F16", "[2, 8]", std::vector<uint16_t>(16, 0x3c00))
      .Add("a.g_idx", "I32", "[16]", groups);
}

constexpr Quantization kGptq{
    .method = QuantMethod::kGptq, .group_size = 8, .zeros_are_one_less = true};

TEST_CASE("GPTQ with an order of inputs has its values in the model's order") {
  TestFile file;
  AddGptq(file, {0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  auto source = file.Open(kGptq, 8, 16);
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK((*source)->encoding(0)->is_permuted);
  CHECK((*source)->InputOrder(0)[1] == 2);
  const std::vector<float> values = Values(**source, 0, 2, 16);
  for (int i = 0; i < 16; ++i) {
    CHECK(values[static_cast<size_t>(i)] == static_cast<float>(i - (i % 2 == 0 ? 8 : 4)));
    CHECK(values[static_cast<size_t>(16 + i)] == static_cast<float>(9 - (i % 2 == 0 ? 8 : 4)));
  }
}

TEST_CASE("GPTQ with groups of several sizes is refused") {
  TestFile file;
  AddGptq(file, {0, 1, 1, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  CHECK_THAT(std::string(file.Open(kGptq, 8, 16).status().message()),
             ContainsSubstring("a.g_idx: has groups of another size than 8"));
}

TEST_CASE("a bias of zeros belongs to a GPTQ layer, any other does not") {
  for (const float value : {0.0f, 0.5f}) {
    TestFile file;
    AddGptq(file, {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1})
        .Add("a.bias", "F32", "[8]", std::vector<float>(8, value));
    REQUIRE(file.Open(kGptq, 8, 16).ok());
    auto files = CheckpointFiles::Open(file.path());
    REQUIRE(files.ok());
    const std::set<std::string> names =
        NamesOfMatrix(*files, {.name = "a.weight", .rows = 8, .cols = 16, .quantization = kGptq});
    CHECK(names.contains("a.qzeros"));
    CHECK(names.contains("a.weight"));  // so that another bias is a bias of a weight in use
    CHECK(names.contains("a.bias") == (value == 0));
  }
}

TEST_CASE("MXFP4 holds all experts, with the outputs of two matrices in turns") {
  // Row r of expert e has the code e + 2 r everywhere, with scale 2^r.
  std::vector<uint8_t> blocks, scales;
  for (uint8_t expert = 0; expert < 2; ++expert) {
    for (uint8_t row = 0; row < 4; ++row) {
      const uint8_t code = static_cast<uint8_t>(expert + 2 * row);
      blocks.insert(blocks.end(), 16, static_cast<uint8_t>(code | code << 4));
      scales.push_back(static_cast<uint8_t>(127 + row));
    }
  }
  blocks[4 * 16] = 0x2f;  // the first two codes of expert 1's row 0: -6 and 1
  TestFile file;
  file.Add("e.gate_up_blocks", "U8", "[2, 4, 1, 16]", blocks)
      .Add("e.gate_up_scales", "U8", "[2, 4, 1]", scales)
      .Write();
  TensorRequest request{.name = "e.gate_up",
                        .rows = 2,
                        .cols = 32,
                        .transposed = true,
                        .quantization = {.method = QuantMethod::kMxFp4},
                        .place = {.expert = 1, .n_experts = 2, .turn = 0, .n_turns = 2}};
  auto source = OpenCheckpoint(file.path(), {&request, 1});
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK((*source)->encoding(0) == MxFp4Encoding());
  const std::vector<float> values = Values(**source, 0, 2, 32);
  CHECK(std::vector<float>(values.begin(), values.begin() + 3) == std::vector<float>{-6, 1, 0.5f});
  CHECK(values[32] == 3 * 4);  // code 5, row 2 of the tensor
  request.place.turn = 1;
  request.place.expert = 0;
  source = OpenCheckpoint(file.path(), {&request, 1});
  REQUIRE(source.ok());
  CHECK(Values(**source, 0, 2, 32)[32] == 4 * 8);  // code 6, row 3
  request.place.n_experts = 3;
  CHECK_THAT(std::string(OpenCheckpoint(file.path(), {&request, 1}).status().message()),
             ContainsSubstring("e.gate_up_blocks: has shape [2, 4, 1, 16]"));
}

TEST_CASE("MXFP4 of a linear layer, beside packed integers of another") {
  constexpr Quantization kCompressed{.method = QuantMethod::kCompressedTensors};
  // 2 rows of 64 inputs: codes 1 (0.5) and 15 (-6) in turns; scales 1, 2, 4, 8.
  const auto open = [&](const char* scale_shape, int64_t cols) {
    TestFile file;
    return file.Add("a.weight_packed", "U8", "[2, 32]", std::vector<uint8_t>(64, 0xf1))
        .Add<uint8_t>("a.weight_scale", "U8", scale_shape, {127, 128, 129, 130})
        .Open(kCompressed, 2, cols);
  };
  auto source = open("[2, 2]", 64);
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK((*source)->encoding(0) == MxFp4Encoding());
  const std::vector<float> values = Values(**source, 1, 1, 64);
  CHECK(values[0] == 0.5f * 4);
  CHECK(values[1] == -6.0f * 4);
  CHECK(values[63] == -6.0f * 8);
  CHECK_THAT(std::string(open("[4]", 64).status().message()),
             ContainsSubstring("a.weight_scale: has shape [4], but config.json needs [2, 2]"));
  CHECK_THAT(std::string(open("[2, 2]", 48).status().message()),
             ContainsSubstring("48 inputs are not a multiple of MXFP4's groups of 32"));
}

// Adds 2 rows of 32 inputs: codes 1 (0.5) and 15 (-6) in turns; scales 1, 2, 3, 4.
TestFile& AddNvFp4(TestFile& file, std::string_view codes) {
  return file.Add(codes, "U8", "[2, 16]", std::vector<uint8_t>(32, 0xf1))
      .Add("a.weight_scale", "F8_E4M3", "[2, 2]", kOneToFour);
}

TEST_CASE("NVFP4 divides by compressed-tensors' scale of a matrix and multiplies by ModelOpt's") {
  const auto check = [](absl::StatusOr<std::unique_ptr<WeightSource>> source) {
    INFO(source.status());
    REQUIRE(source.ok());
    CHECK((*source)->encoding(0) == NvFp4Encoding());
    const std::vector<float> values = Values(**source, 1, 1, 32);
    CHECK(values[0] == 0.5f * 3 / 4);
    CHECK(values[1] == -6.0f * 3 / 4);
    CHECK(values[31] == -6.0f * 4 / 4);
  };
  constexpr Quantization kCompressed{.method = QuantMethod::kCompressedTensors};
  constexpr Quantization kModelOpt{.method = QuantMethod::kModelOpt};
  check(
      AddNvFp4(TestFile().Add<float>("a.weight_global_scale", "F32", "[1]", {4}), "a.weight_packed")
          .Open(kCompressed, 2, 32));
  check(AddNvFp4(TestFile().Add<float>("a.weight_scale_2", "F32", "[]", {0.25f}), "a.weight")
            .Open(kModelOpt, 2, 32));

  const auto error = [](absl::StatusOr<std::unique_ptr<WeightSource>> source) {
    return std::string(source.status().message());
  };
  CHECK_THAT(error(AddNvFp4(TestFile().Add<float>("a.weight_global_scale", "F32", "[1]", {0}),
                            "a.weight_packed")
                       .Open(kCompressed, 2, 32)),
             ContainsSubstring("a.weight_global_scale: is not a number above 0"));
  CHECK_THAT(
      error(AddNvFp4(TestFile().Add<float>("a.weight_scale_2", "F32", "[2]", {1, 1}), "a.weight")
                .Open(kModelOpt, 2, 32)),
      ContainsSubstring("a.weight_scale_2: is not one number"));
  CHECK_THAT(
      error(AddNvFp4(TestFile()
                         .Add<float>("a.weight_scale_2", "F32", "[]", {1})
                         .Add<float>("a.pre_quant_scale", "F32", "[32]", std::vector<float>(32)),
                     "a.weight")
                .Open(kModelOpt, 2, 32)),
      ContainsSubstring("a.pre_quant_scale: scales the inputs"));
}

}  // namespace
}  // namespace stagecoach::worker
