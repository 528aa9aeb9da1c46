#include "router/text/reasoning.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

struct Parts {
  std::string reasoning, content;
  friend bool operator==(const Parts&, const Parts&) = default;
};

Parts Read(bool open, const std::vector<std::string_view>& pieces) {
  ReasoningSplitter splitter(open);
  ReasoningSplitter::Output out;
  for (const std::string_view piece : pieces) splitter.Push(piece, &out);
  splitter.End(&out);
  return {out.reasoning, out.content};
}

Parts ReadCutAnywhere(bool open, std::string_view text) {
  const Parts whole = Read(open, {text});
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      INFO("cut at " << i << " and " << j << " of " << text);
      REQUIRE(Read(open, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}) == whole);
    }
  }
  return whole;
}

TEST_CASE("reasoning is separated from the answer") {
  CHECK(ReadCutAnywhere(false, "<think>\nHm,  so\n</think>\n\nHello ") ==
        Parts{"Hm,  so", "Hello "});
  CHECK(ReadCutAnywhere(false, " <think></think>Hi") == Parts{"", "Hi"});
  CHECK(ReadCutAnywhere(true, "\nHm </b> so</think> Hi") == Parts{"Hm </b> so", "Hi"});
  CHECK(ReadCutAnywhere(true, "</think>Hi") == Parts{"", "Hi"});
}

TEST_CASE("unfinished reasoning is not part of the answer") {
  CHECK(ReadCutAnywhere(false, "<think>Hm, ") == Parts{"Hm,", ""});
  CHECK(ReadCutAnywhere(true, "Hm</th") == Parts{"Hm</th", ""});
  CHECK(ReadCutAnywhere(true, "Hm</think>") == Parts{"Hm", ""});
}

TEST_CASE("an answer without reasoning is not changed") {
  CHECK(ReadCutAnywhere(false, "Hi <think>x</think>") == Parts{"", "Hi <think>x</think>"});
  CHECK(ReadCutAnywhere(false, "\n <thin") == Parts{"", "\n <thin"});
  CHECK(ReadCutAnywhere(false, "").content.empty());
}

}  // namespace
}  // namespace stagecoach::router
