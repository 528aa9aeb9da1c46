#include "common/gguf/gguf_file.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/gguf/test_gguf.h"
#include "common/temp_dir.h"

namespace stagecoach::gguf {
namespace {

using Catch::Matchers::ContainsSubstring;

absl::StatusOr<std::shared_ptr<const GgufFile>> Parse(const std::string& bytes) {
  return GgufFile::Parse("x.gguf", std::as_bytes(std::span(bytes)));
}

std::string Error(const std::string& bytes) {
  const absl::Status status = Parse(bytes).status();
  CHECK_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), ContainsSubstring("x.gguf"));
  return std::string(status.message());
}

TestGguf Sample() {
  TestGguf file;
  file.String("general.architecture", "llama");
  file.Uint("llama.block_count", 2);
  file.Float("llama.rope.freq_base", 5e5f);
  file.Bool("yes", true);
  file.Value("big", ValueType::kUint64, TestGguf::Raw<uint64_t>(~0ull));
  file.Value("minus", ValueType::kInt8, "\xff");
  file.Array("tokens", ValueType::kString, 2, TestGguf::Text("a") + TestGguf::Text("bc"));
  file.Array("ids", ValueType::kInt32, 2, TestGguf::Raw<int32_t>(-5) + TestGguf::Raw<int32_t>(7));
  file.Array("scores", ValueType::kFloat32, 1, TestGguf::Raw(0.5f));
  file.Array("none", ValueType::kString, 0, "");
  file.Array("flags", ValueType::kBool, 2, std::string("\0\1", 2));
  file.Tensor("a.weight", {2, 3}, TensorType::kF32, std::string(24, 'a'));
  file.Tensor("b.weight", {32}, TensorType::kQ4_0, std::string(18, 'b'));
  return file;
}

TEST_CASE("metadata is found by type and tensors by offset") {
  TempDir dir;
  dir.Write("m.gguf", Sample().Bytes());
  auto opened = GgufFile::Open(dir.File("m.gguf"));
  INFO(opened.status());
  REQUIRE(opened.ok());
  const GgufFile& file = **opened;
  CHECK(*file.String("general.architecture") == "llama");
  CHECK(*file.Int("llama.block_count") == 2);
  CHECK(*file.Int("minus") == -1);
  CHECK(*file.Float("llama.rope.freq_base") == 5e5);
  CHECK(*file.Float("llama.block_count") == 2);
  CHECK(*file.Bool("yes"));
  CHECK(*file.Strings("tokens") == std::vector<std::string_view>{"a", "bc"});
  CHECK(file.Strings("none")->empty());
  CHECK(*file.Ints("ids") == std::vector<int64_t>{-5, 7});
  CHECK(*file.Floats("scores") == std::vector<float>{0.5f});
  CHECK(*file.Floats("ids") == std::vector<float>{-5, 7});
  CHECK(*file.Bools("flags") == std::vector<bool>{false, true});
  CHECK(file.IsArray("ids"));
  CHECK_FALSE(file.IsArray("yes"));
  CHECK_FALSE(file.Has("nothing"));

  REQUIRE(file.tensors().size() == 2);
  const TensorInfo& a = file.tensors().at("a.weight");
  CHECK(a.shape == std::vector<int64_t>{3, 2});
  CHECK(a.type == TensorType::kF32);
  CHECK(file.bytes()[a.begin] == std::byte{'a'});
  const TensorInfo& b = file.tensors().at("b.weight");
  CHECK(b.end - b.begin == 18);
  CHECK(file.bytes()[b.end - 1] == std::byte{'b'});
}

TEST_CASE("for a value of the wrong type, the error names the key") {
  const std::string bytes = Sample().Bytes();
  const auto file = *Parse(bytes);
  CHECK(absl::IsNotFound(file->Int("nothing").status()));
  for (const absl::Status& status :
       {file->Int("general.architecture").status(), file->Int("llama.rope.freq_base").status(),
        file->Int("big").status(), file->Int("ids").status(), file->Ints("big").status(),
        file->Ints("scores").status(), file->Strings("ids").status(), file->String("yes").status(),
        file->Bool("big").status(), file->Float("yes").status(), file->Floats("tokens").status()}) {
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring("x.gguf: key "));
  }
}

TEST_CASE("every truncated file is refused") {
  const std::string bytes = Sample().Bytes();
  for (size_t n = 0; n < bytes.size(); ++n) {
    INFO(n);
    CHECK_FALSE(Parse(bytes.substr(0, n)).ok());
  }
}

TEST_CASE("files that are not supported GGUF files are refused by name") {
  CHECK_THAT(Error("PK\3\4"), ContainsSubstring("not a GGUF file"));
  CHECK_THAT(Error(Sample().Bytes(1)), ContainsSubstring("version 1"));
  CHECK_THAT(Error(Sample().Bytes(0x03000000)), ContainsSubstring("big-endian"));
  TestGguf file;
  file.Info("a", {256}, 11, 0);
  file.Info("b", {256}, 1000, 0);
  CHECK_THAT(Error(file.Bytes()), ContainsSubstring("2 tensors") && ContainsSubstring("a (Q3_K)") &&
                                      ContainsSubstring("b (a"));
}

TEST_CASE("wrong sizes are refused") {
  const auto metadata = [](ValueType type, const std::string& payload) {
    TestGguf file;
    file.Value("key", type, payload);
    return Error(file.Bytes());
  };
  using G = TestGguf;
  constexpr uint64_t kHuge = ~0ull;
  CHECK_THAT(metadata(ValueType::kString, G::Raw(kHuge)), ContainsSubstring("value of key"));
  CHECK_THAT(metadata(ValueType::kArray, G::Raw(ValueType::kUint64) + G::Raw(kHuge / 8 + 1)),
             ContainsSubstring("value of key"));
  CHECK_THAT(metadata(ValueType::kArray, G::Raw(ValueType::kString) + G::Raw(kHuge)),
             ContainsSubstring("value of key"));
  CHECK_THAT(metadata(ValueType::kArray, G::Raw(ValueType::kArray) + G::Raw<uint64_t>(1)),
             ContainsSubstring("arrays of arrays"));
  CHECK_THAT(metadata(static_cast<ValueType>(13), ""), ContainsSubstring("value type 13"));

  const auto tensor = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    TestGguf file;
    file.Info("t", dims, type, offset);
    return Error(file.Bytes() + std::string(64, 'x'));
  };
  CHECK_THAT(tensor({}, 0, 0), ContainsSubstring("0 dimensions"));
  CHECK_THAT(tensor({1, 1, 1, 1, 1}, 0, 0), ContainsSubstring("5 dimensions"));
  CHECK_THAT(tensor({0}, 0, 0), ContainsSubstring("dimension of 0"));
  CHECK_THAT(tensor({1ull << 62, 4}, 0, 0), ContainsSubstring("too large"));
  CHECK_THAT(tensor({31}, 2, 0), ContainsSubstring("whole blocks"));
  CHECK_THAT(tensor({17}, 0, 0), ContainsSubstring("tensor t"));
  CHECK_THAT(tensor({1}, 0, kHuge - 31), ContainsSubstring("tensor t"));
  CHECK_THAT(tensor({1}, 0, 4), ContainsSubstring("alignment"));
}

TEST_CASE("overlapping tensors and duplicate names and keys are refused") {
  TestGguf overlap;
  overlap.Info("a", {16}, 0, 0);
  overlap.Info("b", {8}, 0, 32);
  CHECK_THAT(Error(overlap.Bytes() + std::string(64, 'x')), ContainsSubstring("a and b overlap"));
  TestGguf names;
  names.Info("a", {8}, 0, 0);
  names.Info("a", {8}, 0, 32);
  CHECK_THAT(Error(names.Bytes() + std::string(64, 'x')),
             ContainsSubstring("tensor a occurs twice"));
  TestGguf keys;
  keys.Uint("k", 1);
  keys.Uint("k", 2);
  CHECK_THAT(Error(keys.Bytes()), ContainsSubstring("key k occurs twice"));
  TestGguf alignment;
  alignment.Uint("general.alignment", 48);
  CHECK_THAT(Error(alignment.Bytes()), ContainsSubstring("not a power of two"));
}

}  // namespace
}  // namespace stagecoach::gguf
