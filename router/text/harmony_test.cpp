#include "router/text/harmony.h"

#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/text/testing/cut_text.h"

namespace stagecoach::router {
namespace {

struct Answer {
  std::string reasoning, content;
  std::vector<std::string> calls;  // name and arguments
  friend bool operator==(const Answer&, const Answer&) = default;
};

const HarmonyReader::Options kWithTools{.tools = ToolCallOptions{.family = ToolFamily::kHarmony}};

Answer ReadOnce(const HarmonyReader::Options& options, const Pieces& pieces) {
  HarmonyReader reader(options, "key");
  Answer answer;
  const auto take = [&](const HarmonyReader::Output& out) {
    answer.reasoning += out.reasoning;
    answer.content += out.rest.content;
    for (const ToolCallPiece& piece : out.rest.calls) {
      CHECK(piece.id.empty() == piece.name.empty());
      if (!piece.name.empty()) answer.calls.push_back(piece.name + " ");
      REQUIRE(piece.index + 1 == answer.calls.size());
      answer.calls.back() += piece.arguments;
    }
  };
  ReadPieces(reader, pieces, take);
  CHECK(reader.n_calls() == answer.calls.size());
  return answer;
}

Answer Read(std::string_view text, const HarmonyReader::Options& options = kWithTools) {
  return ReadCutAnywhere(text, [&](const Pieces& pieces) { return ReadOnce(options, pieces); });
}

TEST_CASE("Harmony: channels become reasoning, content and calls") {
  CHECK(Read("<|channel|>analysis<|message|>Think < think.<|end|><|start|>assistant<|channel|>final"
             "<|message|>Hello <|world|>!") == Answer{"Think < think.", "Hello <|world|>!", {}});
  CHECK(Read("<|channel|>analysis<|message|>Look.<|end|><|start|>assistant<|channel|>commentary "
             "to=functions.weather <|constrain|>json<|message|>{\"city\": \"Åre\"}<|call|>") ==
        Answer{"Look.", "", {"weather {\"city\": \"Åre\"}"}});
  // The recipient in front of the channel; a preamble; two calls; no arguments.
  CHECK(Read("<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant to=functions.f"
             "<|channel|>commentary json<|message|>{\"a\": 1}<|call|><|start|>assistant<|channel|>"
             "commentary to=functions.g<|message|><|call|>") ==
        Answer{"", "One moment.", {"f {\"a\": 1}", "g {}"}});
  CHECK(Read(" to=functions.f<|channel|>commentary json<|message|>{}") == Answer{"", "", {"f {}"}});
  CHECK(
      Read("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>"
           "b<|end|><|start|>assistant<|channel|>final<|message|>c<|return|>") ==
      Answer{"a\nb", "c", {}});
}

TEST_CASE("Harmony: what is no message is text, and heads of messages are not") {
  CHECK(Read("Hello <b>") == Answer{"", "Hello <b>", {}});
  CHECK(Read("tomorrow") == Answer{"", "tomorrow", {}});
  CHECK(Read("") == Answer{});
  CHECK(Read("<|channel|>anal") == Answer{});
  CHECK(Read("<|chan") == Answer{"", "<|chan", {}});
  CHECK(Read("<|channel|>final<|message|>Hi<|end|> and more") == Answer{"", "Hi\nand more", {}});
  CHECK(Read("<|channel|>final<|message|>Hi<|end|><|start|>assistant<|cha") ==
        Answer{"", "Hi", {}});
  CHECK(Read("<|channel|>analysis<|message|>a<|channel|>final<|message|>b") ==
        Answer{"a", "b", {}});
  const std::string long_head = "<|channel|>" + std::string(1100, 'x') + "<|message|>Hi";
  CHECK(Read(long_head).content.ends_with("<|message|>Hi"));
  // Recipients that are no functions, and calls without tools.
  CHECK(Read("<|channel|>analysis to=python code<|message|>1 + 1<|call|>") ==
        Answer{"1 + 1", "", {}});
  CHECK(Read("<|channel|>commentary to=functions.f<|message|>{}<|call|>", {}) ==
        Answer{"", "{}", {}});
  CHECK(Read("<|channel|>commentary to=functions.f<|message|>{\"a\": \"b<|c") ==
        Answer{"", "", {"f {\"a\": \"b<|c"}});
}

TEST_CASE("Harmony: reasoning that is not separated keeps its marks") {
  CHECK(Read("<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b",
             {.separate_reasoning = false}) ==
        Answer{"", "<|channel|>analysis<|message|>a<|end|>\nb", {}});
}

TEST_CASE("Harmony: the text continues what the prompt has begun") {
  CHECK(Read(" world<|return|>", {.begun = "<|channel|>final<|message|>Hello"}) ==
        Answer{"", " world", {}});
  CHECK(Read("so<|end|><|start|>assistant<|channel|>final<|message|>b",
             {.begun = "<|channel|>analysis<|message|>And "}) == Answer{"so", "b", {}});
}

TEST_CASE("Harmony: without parallel calls, the first call is the last") {
  HarmonyReader::Options options = kWithTools;
  options.tools->parallel = false;
  CHECK(Read("<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant"
             "<|channel|>final<|message|>x",
             options) == Answer{"", "", {"f {}"}});
  HarmonyReader reader(options, "key");
  HarmonyReader::Output out;
  reader.Push("<|channel|>analysis<|message|>a", &out);
  CHECK(reader.is_reasoning());
  reader.Push("<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}", &out);
  CHECK_FALSE(reader.is_reasoning());
  CHECK_FALSE(reader.done());
  reader.Push("<|call|>", &out);
  CHECK(reader.done());
}

}  // namespace
}  // namespace stagecoach::router
