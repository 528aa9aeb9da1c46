#include "worker/loader/weight_source.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

TensorRequest Matrix(std::string name, int64_t rows, int64_t cols) {
  return {.name = std::move(name), .rows = rows, .cols = cols};
}
TensorRequest Vector(std::string name, int64_t cols) {
  return {.name = std::move(name), .cols = cols, .is_vector = true};
}

// One F32 tensor of shape [n] or [rows, 2] with the values first, first + 1, ...
std::string OneTensor(std::string_view name, std::string_view shape, int n, float first) {
  std::string data;
  for (int i = 0; i < n; ++i) {
    const float value = first + static_cast<float>(i);
    data.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return SafetensorsText(
      fmt::format(R"({{"{}": {{"dtype": "F32", "shape": {}, "data_offsets": [0, {}]}}}})", name,
                  shape, data.size()),
      data);
}

std::vector<float> Read(WeightSource& source, size_t request, int64_t first_row, int64_t n_rows,
                        int64_t cols) {
  const RowsView view = source.Rows(request, first_row, n_rows);
  CHECK(view.dtype == DType::kF32);
  const float* data = static_cast<const float*>(view.data);
  return {data, data + n_rows * cols};
}

TEST_CASE("a single file is read with and without the model prefix, aligned or not") {
  for (const char* name : {"model.norm.weight", "norm.weight", "language_model.model.norm.weight",
                           "model.language_model.norm.weight"}) {
    for (const char* shape : {"[3, 2]", "[3, 2] ", "[3, 2]  ", "[3, 2]   "}) {
      TempDir dir;
      dir.Write("model.safetensors", OneTensor(name, shape, 6, 1));
      const std::vector<TensorRequest> requests = {Matrix("model.norm.weight", 3, 2)};
      auto source = OpenCheckpoint(dir.path(), requests);
      INFO(name << ": " << source.status());
      REQUIRE(source.ok());
      CHECK(Read(**source, 0, 1, 2, 2) == std::vector<float>{3, 4, 5, 6});
      CHECK(Read(**source, 0, 0, 1, 2) == std::vector<float>{1, 2});
    }
  }
}

TEST_CASE("a transposed tensor can be read in pieces") {
  for (const char* name : {"transformer.h.0.mlp.c_fc.weight", "h.0.mlp.c_fc.weight"}) {
    for (const char* shape : {"[3, 2]", "[3, 2] "}) {
      TempDir dir;
      dir.Write("model.safetensors", OneTensor(name, shape, 6, 1));
      TensorRequest request = Matrix("transformer.h.0.mlp.c_fc.weight", 2, 3);
      request.transposed = true;
      auto source = OpenCheckpoint(dir.path(), {&request, 1});
      INFO(name << ": " << source.status());
      REQUIRE(source.ok());
      CHECK(Read(**source, 0, 0, 1, 3) == std::vector<float>{1, 3, 5});
      CHECK(Read(**source, 0, 1, 1, 3) == std::vector<float>{2, 4, 6});
      CHECK(Read(**source, 0, 0, 2, 3) == std::vector<float>{1, 3, 5, 2, 4, 6});
      request.transposed = false;
      CHECK_THAT(std::string(OpenCheckpoint(dir.path(), {&request, 1}).status().message()),
                 ContainsSubstring("has shape [3, 2], but config.json needs [2, 3]"));
    }
  }
}

TEST_CASE("only shards with requested tensors are opened") {
  TempDir dir;
  dir.Write("model-1.safetensors", OneTensor("model.norm.weight", "[2]", 2, 1));
  dir.Write("model.safetensors.index.json",
            R"({"weight_map": {"model.norm.weight": "model-1.safetensors",
    "lm_head.weight": "model-2.safetensors", "model.layers.0.mlp.up_proj.weight": "model-3.safetensors",
    "model.layers.1.mlp.up_proj.weight": "model-1.safetensors"}})");
  const std::vector<TensorRequest> requests = {Vector("model.norm.weight", 2)};
  auto source = OpenCheckpoint(dir.path(), requests);
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK(Read(**source, 0, 0, 1, 2) == std::vector<float>{1, 2});

  const std::vector<TensorRequest> more = {Vector("model.norm.weight", 2),
                                           Matrix("lm_head.weight", 4, 2),
                                           Matrix("model.layers.0.mlp.up_proj.weight", 4, 2),
                                           Matrix("model.layers.1.mlp.up_proj.weight", 4, 2)};
  const absl::Status status = OpenCheckpoint(dir.path(), more).status();
  CHECK(absl::IsInvalidArgument(status));
  for (const char* part :
       {"model-2.safetensors: No such file", "model-3.safetensors: No such file",
        "model.layers.1.mlp.up_proj.weight: in the index, but not in the file"}) {
    CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
  }
}

TEST_CASE("an index with a path outside the folder is refused") {
  for (const char* file : {"../x.safetensors", "/etc/passwd", "..", "sub/x.safetensors", ""}) {
    TempDir dir;
    dir.Write("model.safetensors.index.json",
              fmt::format(R"({{"weight_map": {{"a": "{}"}}}})", file));
    const absl::Status status = OpenCheckpoint(dir.path(), {}).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("not a file in this folder"));
  }
}

TEST_CASE("all mismatches are reported together, layers grouped") {
  TempDir dir;
  dir.Write(
      "model.safetensors",
      SafetensorsText(
          R"({"model.embed_tokens.weight": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
                                "lm_head.weight": {"dtype": "I8", "shape": [4, 2], "data_offsets": [8, 16]},
                                "model.norm.weight": {"dtype": "F32", "shape": [1, 2], "data_offsets": [16, 24]}})",
          "012345670123456701234567"));
  std::vector<TensorRequest> requests = {Matrix("model.embed_tokens.weight", 4, 2),
                                         Matrix("lm_head.weight", 4, 2),
                                         Vector("model.norm.weight", 2)};
  for (int i = 0; i < 3; ++i)
    requests.push_back(Matrix(fmt::format("model.layers.{}.mlp.up_proj.weight", i), 4, 2));
  const absl::Status status = OpenCheckpoint(dir.path(), requests).status();
  CHECK(absl::IsInvalidArgument(status));
  for (const char* part :
       {"model.embed_tokens.weight: has shape [1, 2], but config.json needs [4, 2]",
        "lm_head.weight: has dtype I8", "model.norm.weight: has shape [1, 2]",
        "model.layers.{0-2}.mlp.up_proj.weight (3): missing"}) {
    CHECK_THAT(std::string(status.message()), ContainsSubstring(part));
  }
}

TEST_CASE("the error names an unmerged adapter") {
  TempDir dir;
  dir.Write(
      "model.safetensors",
      OneTensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight", "[2]", 2, 1));
  CHECK_THAT(std::string(OpenCheckpoint(dir.path(), {}).status().message()),
             ContainsSubstring("LoRA"));
}

TEST_CASE("for a folder without readable weights, the error lists its contents") {
  TempDir dir;
  dir.Write("consolidated.00.pth", "x");
  const absl::Status status = OpenCheckpoint(dir.path(), {}).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("but consolidated.00.pth"));
}

TEST_CASE("dummy weights depend only on name and index") {
  std::vector<TensorRequest> both = {Matrix("a", 100, 50), Matrix("b", 100, 50)};
  for (TensorRequest& request : both) request.dummy_center = 1, request.dummy_spread = 0.5f;
  auto source = MakeDummyWeights(DType::kBF16, both);
  CHECK(source->dtype(0) == DType::kBF16);
  const std::vector<float> a = Read(*source, 0, 0, 100, 50);
  const std::vector<float> b = Read(*source, 1, 0, 100, 50);
  CHECK(a != b);
  auto alone = MakeDummyWeights(DType::kBF16, std::span(both).last(1));
  CHECK(Read(*alone, 0, 40, 2, 50) == std::vector<float>(b.begin() + 2000, b.begin() + 2100));
  double sum = 0;
  for (const float value : a) {
    CHECK(std::abs(value - 1) <= 0.5f);
    sum += value;
  }
  CHECK(std::abs(sum / 5000 - 1) < 0.02);
}

TEST_CASE("a request can be one expert's part of a tensor, in turns with another") {
  TempDir dir;
  // [experts, inputs, outputs]; outputs of gate and up in turns
  dir.Write("model.safetensors", OneTensor("experts.gate_up", "[2, 3, 4]", 24, 0));
  const TensorRequest request{.name = "experts.gate_up",
                              .rows = 2,
                              .cols = 3,
                              .transposed = true,
                              .place = {.expert = 1, .n_experts = 2, .turn = 1, .n_turns = 2}};
  auto source = OpenCheckpoint(dir.path(), {&request, 1});
  INFO(source.status());
  REQUIRE(source.ok());
  CHECK_FALSE((*source)->encoding(0).has_value());
  CHECK(Read(**source, 0, 0, 2, 3) == std::vector<float>{13, 17, 21, 15, 19, 23});
  CHECK(Read(**source, 0, 1, 1, 3) == std::vector<float>{15, 19, 23});

  // The same numbers with the outputs of gate before those of up.
  TensorRequest after = request;
  after.place.in_turns = false;
  auto halves = OpenCheckpoint(dir.path(), {&after, 1});
  REQUIRE(halves.ok());
  CHECK(Read(**halves, 0, 0, 2, 3) == std::vector<float>{14, 18, 22, 15, 19, 23});

  // As the second choice of a request that has a tensor of its own in other checkpoints.
  TensorRequest fused{.name = "experts.1.up.weight", .rows = 2, .cols = 3};
  fused.fused_name = "experts.gate_up";
  fused.fused_place = after.place;
  auto found = OpenCheckpoint(dir.path(), {&fused, 1});
  INFO(found.status());
  REQUIRE(found.ok());
  CHECK(Read(**found, 0, 1, 1, 3) == std::vector<float>{15, 19, 23});

  TensorRequest bias{.name = "experts.gate_up", .cols = 2, .is_vector = true};
  bias.place = request.place;
  dir.Write("model.safetensors", OneTensor("experts.gate_up", "[2, 4]", 8, 0));
  auto vector = OpenCheckpoint(dir.path(), {&bias, 1});
  INFO(vector.status());
  REQUIRE(vector.ok());
  CHECK(Read(**vector, 0, 0, 1, 2) == std::vector<float>{5, 7});
  CHECK_THAT(std::string(OpenCheckpoint(dir.path(), {&request, 1}).status().message()),
             ContainsSubstring("has shape [2, 4], but config.json needs [2, 3, 4]"));
}

TEST_CASE("dummy experts in MXFP4 differ, and have the spread of other dummy weights") {
  TensorRequest request = Matrix("experts.gate_up", 64, 64);
  request.dummy_spread = 0.2f;
  request.quantization.method = QuantMethod::kMxFp4;
  std::vector<TensorRequest> requests(2, request);
  requests[0].place = {.expert = 0, .n_experts = 2};
  requests[1].place = {.expert = 1, .n_experts = 2};
  const auto source = MakeDummyWeights(DType::kBF16, requests);
  CHECK(source->encoding(0) == MxFp4Encoding());
  const std::vector<float> first = Read(*source, 0, 0, 64, 64),
                           second = Read(*source, 1, 0, 64, 64);
  CHECK(first != second);
  const std::vector<float> part = Read(*source, 0, 10, 3, 64);
  CHECK(std::equal(part.begin(), part.end(), first.begin() + 640));
  double square = 0;
  for (const float value : first) square += value * value;
  CHECK(std::sqrt(square / 4096) > 0.5 * 0.2 / std::sqrt(3.0));
  CHECK(std::sqrt(square / 4096) < 2 * 0.2 / std::sqrt(3.0));
}

TEST_CASE("dummy weights in FP8 are those of other dummy weights, rounded") {
  TensorRequest request = Matrix("q_proj.weight", 64, 256);
  request.dummy_spread = 0.2f;
  const std::vector<TensorRequest> plain = {request};
  request.is_linear = true;
  request.quantization = {.method = QuantMethod::kFp8, .group_size = 128};
  const std::vector<TensorRequest> fp8 = {request};
  const auto source = MakeDummyWeights(DType::kBF16, fp8);
  REQUIRE(source->encoding(0));
  CHECK(source->encoding(0)->code == Code::kFp8);
  CHECK(source->encoding(0)->group == 128);
  const std::vector<float> expected = Read(*MakeDummyWeights(DType::kBF16, plain), 0, 10, 3, 256),
                           values = Read(*source, 0, 10, 3, 256);
  for (size_t i = 0; i < values.size(); ++i) {
    // Half a step of the mantissa, or of the subnormal codes.
    CHECK(std::abs(values[i] - expected[i]) <=
          std::max(std::abs(expected[i]) / 16, 0.2f / 448 / 1024) * 1.001f);
  }
  request.is_linear = false;  // of a router or a head
  CHECK_FALSE(ImpliedEncoding(request));
}

}  // namespace
}  // namespace stagecoach::worker
