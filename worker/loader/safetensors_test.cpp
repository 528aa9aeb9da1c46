#include "worker/loader/safetensors.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("tensors are found at the offsets in the header") {
  TempDir dir;
  dir.Write("a.safetensors", SafetensorsText(R"({"__metadata__": {"format": "pt"},
              "a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
              "b": {"dtype": "I64", "shape": [], "data_offsets": [8, 16]},
              "c": {"dtype": "F4", "shape": [4], "data_offsets": [16, 18]},
              "d": {"dtype": "BF16", "shape": [0, 7], "data_offsets": [3, 3]}})",
                                             "0123456789abcdefgh"));
  auto file = OpenTensorFile(dir.File("a.safetensors"));
  INFO(file.status());
  REQUIRE(file.ok());
  CHECK((*file)->tensors.size() == 4);
  const StoredTensor& b = (*file)->tensors.at("b");
  CHECK(b.shape.empty());
  CHECK(std::string(reinterpret_cast<const char*>((*file)->mapped->bytes().data() + b.begin), 8) ==
        "89abcdef");
  (*file)->mapped->WillNeed(b.begin, b.end);
  (*file)->mapped->DontNeed(b.begin, b.end);
}

TEST_CASE("an inconsistent header is refused") {
  struct Case {
    const char* header;
    const char* message;
  };
  const Case c = GENERATE(values<Case>({
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}})", "has 4 bytes, but"},
      {R"({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})",
       "is the download incomplete"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}})", "not a range"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}})", "not a range"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}})", "no data_offsets"},
      {R"({"a": {"dtype": "F32", "shape": [4611686018427387904, 4], "data_offsets": [0, 0]}})",
       "too large"},
      {R"({"a": {"dtype": "F32", "shape": [4294967296, 4294967296, 0.5], "data_offsets": [0, 0]}})",
       "with invalid sizes"},
      {R"({"a": {"dtype": "F32", "shape": [18446744073709551615], "data_offsets": [0, 8]}})",
       "too large"},
      {R"({"a": {"dtype": "F32", "shape": [1], "data_offsets": [18446744073709551612, 18446744073709551615]}})",
       "is the download incomplete"},
      {R"({"a": {"shape": [1], "data_offsets": [0, 4]}})", "no dtype"},
      {R"({"a": {"dtype": "F32", "data_offsets": [0, 4]}})", "no shape"},
      {R"({"a": 7})", "not an object"},
      {R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
           "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}})",
       "overlap"},
      {R"([1])", "not a safetensors file"},
      {R"({"a":)", "not a safetensors file"},
  }));
  TempDir dir;
  dir.Write("a.safetensors", SafetensorsText(c.header, "01234567"));
  const absl::Status status = OpenTensorFile(dir.File("a.safetensors")).status();
  INFO(c.header);
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring(c.message));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("a.safetensors"));
}

TEST_CASE("a file of another format is refused") {
  TempDir dir;
  const auto error = [&](std::string_view content) {
    dir.Write("a.safetensors", content);
    const absl::Status status = OpenTensorFile(dir.File("a.safetensors")).status();
    CHECK(absl::IsInvalidArgument(status));
    return std::string(status.message());
  };
  CHECK_THAT(error(""), ContainsSubstring("shorter than its header"));
  CHECK_THAT(error("version https://git-lfs.github.com/spec/v1\n"),
             ContainsSubstring("git lfs pull"));
  CHECK_THAT(error(SafetensorsText(R"({"a": {)", "").substr(0, 10)),
             ContainsSubstring("cut short"));
  CHECK(absl::IsNotFound(OpenTensorFile(dir.File("none")).status()));
  CHECK(absl::IsInvalidArgument(OpenTensorFile(dir.path()).status()));
}

}  // namespace
}  // namespace stagecoach::worker
