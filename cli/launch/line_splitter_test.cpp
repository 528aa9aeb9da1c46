#include "cli/launch/line_splitter.h"

#include <catch2/catch_test_macros.hpp>
#include <vector>

#include "cli/launch/fields.h"

namespace stagecoach::launch {
namespace {

TEST_CASE("Lines are complete however the bytes arrive") {
  std::vector<std::string> lines;
  LineSplitter splitter([&](std::string_view line) { lines.emplace_back(line); });
  splitter.Push("on");
  splitter.Push("e\n\ntwo\nthr");
  splitter.Push("ee");
  CHECK(lines == std::vector<std::string>{"one", "", "two"});
  splitter.Flush();
  splitter.Flush();
  CHECK(lines.back() == "three");
  CHECK(lines.size() == 4);
}

TEST_CASE("A stream without newlines does not grow without limit") {
  size_t n_bytes = 0;
  LineSplitter splitter([&](std::string_view line) { n_bytes += line.size(); });
  const std::string chunk(LineSplitter::kMaxLineBytes / 2, 'x');
  for (int i = 0; i < 4; ++i) splitter.Push(chunk);
  CHECK(n_bytes > 0);
}

TEST_CASE("A field is found only by its whole key") {
  const std::string line = "ready grpc=127.0.0.1:1 metrics=127.0.0.1:2 kv_blocks=3";
  CHECK(*Field(line, "grpc") == "127.0.0.1:1");
  CHECK(*Field(line, "kv_blocks") == "3");
  CHECK_FALSE(Field(line, "blocks").ok());
  CHECK_FALSE(Field("", "grpc").ok());
}

}  // namespace
}  // namespace stagecoach::launch
