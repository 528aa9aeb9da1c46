#include "common/model/config_reader.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

ConfigReader Reader(const TempDir& dir, std::string_view text) {
  dir.Write("a.json", text);
  auto object = ReadJsonObject(dir.File("a.json"));
  REQUIRE(object.ok());
  return ConfigReader(*object, "a.json");
}

TEST_CASE("values are read with their types, and defaults fill gaps") {
  TempDir dir;
  ConfigReader reader = Reader(dir, R"({"a": 3, "b": 4.0, "c": null, "d": true, "e": "x", "f": 1e-5,
                                        "g": [1, 2], "h": {"i": 7}})");
  CHECK(reader.Int("a", 0, 10) == 3);
  CHECK(reader.Int("b", 0, 10) == 4);
  CHECK(reader.Int("c", 0, 10, 9) == 9);
  CHECK(reader.Int("absent", 0, 10, 8) == 8);
  CHECK(reader.Bool("d", false));
  CHECK(reader.String("e", "") == "x");
  CHECK(reader.Number("f", 0, 1) == 1e-5);
  CHECK(reader.IntOrInts("g", 0, 9) == std::vector<int32_t>{1, 2});
  CHECK(reader.IntOrInts("a", 0, 9) == std::vector<int32_t>{3});
  CHECK(reader.Section("h").Int("i", 0, 9) == 7);
  CHECK_FALSE(reader.Has("c"));
  CHECK(reader.Mentions("c"));
  CHECK(reader.Finish().ok());
}

TEST_CASE("all problems are reported, with key and value") {
  TempDir dir;
  ConfigReader reader = Reader(
      dir,
      R"({"a": "3", "b": 4.5, "c": 99, "d": 1, "h": {"i": -1}, "j": [1, "x"], "k": 18446744073709551615})");
  reader.Int("a", 0, 10);
  reader.Int("b", 0, 10);
  reader.Int("c", 0, 10);
  reader.Bool("d", false);
  reader.Section("h").Int("i", 0, 10);
  reader.Section("a").Int("never", 0, 10, 1);
  reader.IntOrInts("j", 0, 10);
  reader.Int("k", 0, 10);
  reader.Number("gone", 0, 1);
  reader.Unsupported("z", "cannot");
  const absl::Status status = reader.Finish();
  CHECK(absl::IsInvalidArgument(status));
  const std::string text(status.message());
  for (const char* part :
       {"a.json: ", "a: \"3\" is not an integer", "b: 4.5 is not an integer",
        "c: 99 is outside 0 to 10", "d: 1 is not true or false", "h.i: -1 is outside",
        "a: \"3\" is not an object", "j: \"x\" is not an integer",
        "k: 18446744073709551615 is outside", "gone: missing", "z: cannot"}) {
    CHECK_THAT(text, ContainsSubstring(part));
  }
}

TEST_CASE("a valid but unsupported config is UNIMPLEMENTED") {
  TempDir dir;
  ConfigReader reader = Reader(dir, "{}");
  reader.Unsupported("z", "cannot");
  CHECK(absl::IsUnimplemented(reader.Finish()));
}

TEST_CASE("the error names a file that is not a JSON object") {
  TempDir dir;
  CHECK(absl::IsNotFound(ReadJsonObject(dir.File("none.json")).status()));
  CHECK(absl::IsNotFound(ReadJsonObject(dir.path()).status()));
  dir.Write("list.json", "[1]");
  dir.Write("cut.json", R"({"a": )");
  dir.Write("deep.json", std::string(100000, '['));
  for (const char* name : {"list.json", "cut.json", "deep.json"}) {
    const absl::Status status = ReadJsonObject(dir.File(name)).status();
    CHECK(absl::IsInvalidArgument(status));
    CHECK_THAT(std::string(status.message()), ContainsSubstring(name));
  }
}

TEST_CASE("infinite numbers, as Python and transformers write them") {
  TempDir dir;
  ConfigReader reader = Reader(dir, R"({"old": [0.0, Infinity], "a \"Infinity": [1],
                                        "new": [{"__float__": "Infinity"}]})");
  CHECK(std::isinf(reader.Numbers("old").at(1)));
  CHECK(std::isinf(reader.Numbers("new").at(0)));
  CHECK(reader.Numbers("a \"Infinity").size() == 1);
  CHECK(reader.Finish().ok());
}

}  // namespace
}  // namespace stagecoach
