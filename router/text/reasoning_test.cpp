#include "router/text/reasoning.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

using enum ReasoningPlace;

struct Parts {
  std::string reasoning, content;
  friend bool operator==(const Parts&, const Parts&) = default;
};

Parts Read(ReasoningPlace place, const std::vector<std::string_view>& pieces,
           ReasoningMarks marks) {
  ReasoningSplitter splitter(place, marks);
  ReasoningSplitter::Output out;
  for (const std::string_view piece : pieces) splitter.Push(piece, &out);
  splitter.End(&out);
  return {out.reasoning, out.content};
}

Parts ReadCutAnywhere(ReasoningPlace place, std::string_view text,
                      ReasoningMarks marks = kThinkTags) {
  const Parts whole = Read(place, {text}, marks);
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) {
      INFO("cut at " << i << " and " << j << " of " << text);
      REQUIRE(Read(place, {text.substr(0, i), text.substr(i, j - i), text.substr(j)}, marks) ==
              whole);
    }
  }
  return whole;
}

TEST_CASE("reasoning is separated from the answer") {
  CHECK(ReadCutAnywhere(kBefore, "<think>\nHm,  so\n</think>\n\nHello ") ==
        Parts{"Hm,  so", "Hello "});
  CHECK(ReadCutAnywhere(kBefore, " <think></think>Hi") == Parts{"", "Hi"});
  CHECK(ReadCutAnywhere(kInside, "\nHm </b> so</think> Hi") == Parts{"Hm </b> so", "Hi"});
  CHECK(ReadCutAnywhere(kInside, "</think>Hi") == Parts{"", "Hi"});
}

TEST_CASE("unfinished reasoning is not part of the answer") {
  CHECK(ReadCutAnywhere(kBefore, "<think>Hm, ") == Parts{"Hm,", ""});
  CHECK(ReadCutAnywhere(kInside, "Hm</th") == Parts{"Hm</th", ""});
  CHECK(ReadCutAnywhere(kInside, "Hm</think>") == Parts{"Hm", ""});
}

TEST_CASE("Kimi's calls end reasoning that has no end mark") {
  const std::string calls = "<|tool_calls_section_begin|><|tool_call_begin|>";
  CHECK(ReadCutAnywhere(kBefore, "<think>Hm <|t\n" + calls, kKimiThinkTags) ==
        Parts{"Hm <|t", calls});
  CHECK(ReadCutAnywhere(kInside, "Hm</think>" + calls, kKimiThinkTags) == Parts{"Hm", calls});
  CHECK(ReadCutAnywhere(kInside, "Hm " + calls) == Parts{"Hm " + calls, ""});
}

TEST_CASE("blanks behind reasoning that the prompt has closed are not part of the answer") {
  CHECK(ReadCutAnywhere(kBehind, "\n\nHi <think>") == Parts{"", "Hi <think>"});
  CHECK(ReadCutAnywhere(kBehind, "\n") == Parts{"", ""});
  // Some models think although the prompt has told them not to.
  CHECK(ReadCutAnywhere(kBehind, "\n<think>Hm</think> Hi") == Parts{"Hm", "Hi"});
}

TEST_CASE("an answer without reasoning is not changed") {
  CHECK(ReadCutAnywhere(kBefore, "Hi <think>x</think>") == Parts{"", "Hi <think>x</think>"});
  CHECK(ReadCutAnywhere(kBefore, "\n <thin") == Parts{"", "\n <thin"});
  CHECK(ReadCutAnywhere(kBefore, "").content.empty());
}

}  // namespace
}  // namespace stagecoach::router
