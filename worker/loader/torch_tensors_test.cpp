#include "worker/loader/torch_tensors.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "common/float_convert.h"
#include "common/temp_dir.h"
#include "worker/loader/pickle_machine.h"
#include "worker/loader/test_checkpoint.h"
#include "worker/loader/weight_source.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

std::string Bytes(std::string_view name) {
  std::ifstream in(TestData(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string Error(std::string_view name) {
  const absl::Status status = OpenTensorFile(TestData(name)).status();
  CHECK_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), ContainsSubstring(std::string(name)));
  return std::string(status.message());
}

std::vector<float> Values(WeightSource& source, size_t request, int64_t rows, int64_t cols) {
  const RowsView view = source.Rows(request, 0, rows);
  std::vector<float> values;
  for (int64_t i = 0; i < rows * cols; ++i) {
    values.push_back(LoadElement(view.data, view.dtype, static_cast<size_t>(i)));
  }
  return values;
}

TEST_CASE("files from torch.save: shared and transposed tensors, every float dtype") {
  const std::vector<TensorRequest> requests = {
      {.name = "matrix", .rows = 3, .cols = 4},
      {.name = "tied", .rows = 3, .cols = 4},
      {.name = "part", .cols = 4, .is_vector = true},
      {.name = "turned", .rows = 3, .cols = 2},
      {.name = "parameter", .cols = 2, .is_vector = true},
      {.name = "half", .cols = 2, .is_vector = true},
      {.name = "bfloat", .rows = 1, .cols = 2},
      {.name = "turned", .rows = 2, .cols = 3, .transposed = true},
  };
  auto source = OpenCheckpoint(TestData("tensors.bin"), requests);
  INFO(source.status());
  REQUIRE(source.ok());
  const std::vector<float> twelve = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  CHECK(Values(**source, 0, 3, 4) == twelve);
  CHECK(Values(**source, 1, 3, 4) == twelve);
  CHECK(Values(**source, 2, 1, 4) == std::vector<float>{4, 5, 6, 7});
  CHECK(Values(**source, 3, 3, 2) == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(Values(**source, 4, 1, 2) == std::vector<float>{1.5f, -2.5f});
  CHECK(Values(**source, 5, 1, 2) == std::vector<float>{0.5f, 65504.0f});
  CHECK(Values(**source, 6, 1, 2) == std::vector<float>{3, -1});
  CHECK(Values(**source, 7, 2, 3) == std::vector<float>{0, 1, 2, 3, 4, 5});

  const std::vector<TensorRequest> wrong = {{.name = "ids", .cols = 3, .is_vector = true},
                                            {.name = "odd", .rows = 2, .cols = 2},
                                            {.name = "scalar", .cols = 1, .is_vector = true}};
  const std::string message(OpenCheckpoint(TestData("tensors.bin"), wrong).status().message());
  CHECK_THAT(message, ContainsSubstring("ids: has dtype I64") &&
                          ContainsSubstring("F32 with strides [1, 4, 2]") &&
                          ContainsSubstring("scalar: has shape []"));
}

TEST_CASE("a dictionary may contain plain values besides tensors") {
  const auto file = OpenTensorFile(TestData("plain_dict.bin"));
  INFO(file.status());
  REQUIRE(file.ok());
  CHECK((*file)->format == FileFormat::kTorch);
  CHECK((*file)->tensors.size() == 1);
}

TEST_CASE("sharded .bin files use the names in the index") {
  TempDir dir;
  dir.Write("model-00001.bin", Bytes("tensors.bin"));
  dir.Write("pytorch_model.bin.index.json", R"({"weight_map": {"matrix": "model-00001.bin"}})");
  const std::vector<TensorRequest> requests = {{.name = "matrix", .rows = 3, .cols = 4}};
  CHECK(OpenCheckpoint(dir.path(), requests).ok());
}

TEST_CASE("for a file without a state_dict of tensors, the error names the problem") {
  CHECK_THAT(Error("object.bin"),
             ContainsSubstring("__main__.Config is not a tensor") && ContainsSubstring("data.pkl"));
  CHECK_THAT(Error("training.bin"), ContainsSubstring("\"state_dict\""));
  CHECK_THAT(Error("old_format.bin"), ContainsSubstring("torch.save"));
}

TEST_CASE("a pickle with code is refused before anything is called") {
  using namespace std::string_literals;
  const std::string call = "\x80\x02"s + "cos\nsystem\nX\2\0\0\0ls\x85R."s;
  const absl::Status status = ReadPickledTensors("data.pkl", AsBytes(call)).status();
  CHECK(absl::IsPermissionDenied(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("os.system is not a tensor"));
}

TEST_CASE("pickles that underflow the stack, loop or lie about sizes are errors") {
  using namespace std::string_literals;
  for (const std::string& pickle : {""s,
                                    "."s,
                                    "\x80\x02."s,
                                    "\x80\x04."s,
                                    "("s,
                                    "((."s,
                                    "t."s,
                                    "\x87."s,
                                    "R."s,
                                    "Q."s,
                                    "b."s,
                                    "s."s,
                                    "u."s,
                                    "(u."s,
                                    "}(u)."s,
                                    "q\0."s,
                                    "h\1."s,
                                    "j\xff\xff\xff\xff."s,
                                    "}}."s,
                                    "N."s,
                                    "X\xff\xff\xff\xff."s,
                                    "\x8a\x09"
                                    "123456789."s,
                                    "\x8a\xff."s,
                                    "cx"s,
                                    "ctorch\nFloatStorage"s,
                                    "ctorch\nFloatStorage\n)R."s,
                                    "ctorch._utils\n_rebuild_tensor_v2\n)R."s,
                                    "}(NNu."s,
                                    "}q\0(Nh\0u."s,
                                    "}(N(u."s,
                                    "Na."s,
                                    "]a."s,
                                    "i."s,
                                    "\xff."s,
                                    ")Q."s}) {
    const auto result = ReadPickledTensors("data.pkl", AsBytes(pickle));
    CHECK_FALSE(result.ok());
  }
  // A list of marks, and a tuple nested as deeply as the input is long.
  CHECK_FALSE(ReadPickledTensors("data.pkl", AsBytes(std::string(1 << 20, '('))).ok());
  CHECK_FALSE(
      ReadPickledTensors("data.pkl", AsBytes(")" + std::string(1 << 20, '\x85') + ".")).ok());
}

TEST_CASE("a truncated or modified archive is refused or read within its bounds") {
  const std::string whole = Bytes("tensors.bin");
  REQUIRE(ReadTorchTensors("x.bin", AsBytes(whole)).ok());
  for (size_t n = 0; n < whole.size(); n += 7) {
    const std::string cut = whole.substr(0, n);
    CHECK_FALSE(ReadTorchTensors("x.bin", AsBytes(cut)).ok());
  }
  std::mt19937 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = whole;
    for (int k = 0; k < 3; ++k) changed[random() % changed.size()] = static_cast<char>(random());
    const auto tensors = ReadTorchTensors("x.bin", AsBytes(changed));
    if (!tensors.ok()) continue;
    for (const auto& [name, tensor] : *tensors) {
      if (tensor.begin > tensor.end || tensor.end > changed.size()) FAIL(name);
    }
  }
}

}  // namespace
}  // namespace stagecoach::worker
