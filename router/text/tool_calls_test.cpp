#include "router/text/tool_calls.h"

#include <random>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/text/testing/cut_text.h"

namespace stagecoach::router {
namespace {

struct Call {
  std::string name, arguments;
  friend bool operator==(const Call&, const Call&) = default;
};
struct Answer {
  std::string content;
  std::vector<Call> calls;
  friend bool operator==(const Answer&, const Answer&) = default;
};

Answer Read(const ToolCallParser::Options& options, const Pieces& pieces) {
  ToolCallParser parser(options, "key");
  Answer answer;
  const auto take = [&](const ToolCallParser::Output& out) {
    answer.content += out.content;
    for (const ToolCallPiece& piece : out.calls) {
      const bool is_new = piece.index == answer.calls.size();
      CHECK(is_new == !piece.name.empty());
      CHECK(piece.id.empty() == !is_new);
      if (is_new) answer.calls.emplace_back();
      REQUIRE(piece.index + 1 == answer.calls.size());
      answer.calls.back().name += piece.name;
      answer.calls.back().arguments += piece.arguments;
    }
  };
  ReadPieces(parser, pieces, take);
  CHECK(parser.n_calls() == answer.calls.size());
  return answer;
}

const ToolSchemas kTools =
    std::make_shared<ToolSchemaList>(ToolSchemaList{{"weather", ""}, {"time", ""}});

Answer ReadCutAnywhere(ToolFamily family, std::string_view text, bool parallel = true) {
  const ToolCallParser::Options options{.family = family, .tools = kTools, .parallel = parallel};
  return router::ReadCutAnywhere(text, [&](const Pieces& pieces) { return Read(options, pieces); });
}

const std::vector<Call> kBoth = {{"weather", R"({"city": "Åre", "n": [1, {"}": "]"}]})"},
                                 {"time", "{}"}};

TEST_CASE("Hermes and Qwen: <tool_call>") {
  const auto read = [](std::string_view text) {
    return ReadCutAnywhere(ToolFamily::kHermes, text);
  };
  CHECK(read("Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Åre\", "
             "\"n\": [1, {\"}\": \"]\"}]}}\n</tool_call>\n<tool_call>\n{\"name\": \"time\"}\n"
             "</tool_call>") == Answer{"Let me see.", kBoth});
  CHECK(
      read("<tool_call>{\"arguments\": {\"a\": 1}, \"x\": null, \"name\": \"f\"}</tool_call>ok") ==
      Answer{"ok", {{"f", R"({"a": 1})"}}});
  CHECK(read(R"(<tool_call>{"name": "f", "arguments": "{\"a\": \"\u00e9\"}"}</tool_call>)") ==
        Answer{"", {{"f", R"({"a": "é"})"}}});
  CHECK(read(R"(<tool_call>{"type": "function", "function": {"name": "f", "arguments": {}}})") ==
        Answer{"", {{"f", "{}"}}});
  CHECK(read("a < b, <tool> and <tool_call> is a tag") ==
        Answer{"a < b, <tool> and <tool_call> is a tag", {}});
  CHECK(read("\n <tool_call>\n{\"a\": 1}\n \t<tool_call> {\"name\": \n") ==
        Answer{"\n <tool_call>\n{\"a\": 1}\n \t<tool_call> {\"name\": \n", {}});
  CHECK(read("See \n<tool_call>x \n<tool_call>{\"name\": \"time\"}</tool_call>") ==
        Answer{"See \n<tool_call>x", {{"time", "{}"}}});
  CHECK(read("No call \n") == Answer{"No call \n", {}});
  CHECK(read("cut <tool_ca") == Answer{"cut <tool_ca", {}});
  CHECK(read(R"(<tool_call>{"name": "f", "arguments": {"a": "b)") ==
        Answer{"", {{"f", R"({"a": "b)"}}});
}

TEST_CASE("Mistral: [TOOL_CALLS] and a list") {
  const auto read = [](std::string_view text) {
    return ReadCutAnywhere(ToolFamily::kMistral, text);
  };
  CHECK(read("[TOOL_CALLS] [{\"name\": \"weather\", \"arguments\": {\"city\": \"Åre\", \"n\": [1, "
             "{\"}\": \"]\"}]}}, {\"name\": \"time\", \"arguments\": {}}]") == Answer{"", kBoth});
  CHECK(read("Well[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}, \"id\": \"abcdefghi\"}]") ==
        Answer{"Well", {{"f", "{}"}}});
  CHECK(read("Two\n [TOOL_CALLS] [1, 2]") == Answer{"Two\n [TOOL_CALLS] [1, 2]", {}});
  CHECK(read("An [array] and [TOOL_") == Answer{"An [array] and [TOOL_", {}});
}

TEST_CASE("Mistral: a name and its arguments for each call") {
  const auto read = [](std::string_view text) {
    return ReadCutAnywhere(ToolFamily::kMistralArgs, text);
  };
  CHECK(read("[TOOL_CALLS]weather[ARGS]{\"city\": \"Åre\", \"n\": [1, {\"}\": \"]\"}]}"
             "[TOOL_CALLS]time[CALL_ID]abcdefghi[ARGS]{}") == Answer{"", kBoth});
  CHECK(read("[TOOL_CALLS]f{ \"a\": 1 }") == Answer{"", {{"f", "{ \"a\": 1 }"}}});
  CHECK(read("[TOOL_CALLS]what is this{") == Answer{"[TOOL_CALLS]what is this{", {}});
}

TEST_CASE("Mistral: text that is too long for a name is content, wherever it is split") {
  for (const size_t n : {255, 256, 257, 300}) {
    const std::string name(n, 'f');
    for (const std::string& arguments : {std::string("{}"), std::string("[ARGS]{}")}) {
      const std::string text = "[TOOL_CALLS]" + name + arguments;
      const Answer answer = ReadCutAnywhere(ToolFamily::kMistral, text);
      CHECK(answer == (n <= 256 ? Answer{"", {{name, "{}"}}} : Answer{text, {}}));
    }
  }
}

TEST_CASE("Llama: a text that begins with an object naming a tool is a call") {
  const auto read = [](std::string_view text) { return ReadCutAnywhere(ToolFamily::kJson, text); };
  CHECK(read("{\"name\": \"weather\", \"parameters\": {\"city\": \"Åre\", \"n\": [1, {\"}\": "
             "\"]\"}]}}; {\"name\": \"time\", \"parameters\": {}}") == Answer{"", kBoth});
  CHECK(read("\n<|python_tag|>{\"name\": \"time\", \"parameters\": {}}") ==
        Answer{"", {{"time", "{}"}}});
  CHECK(read("[{\"name\": \"time\", \"arguments\": {}}]") == Answer{"", {{"time", "{}"}}});
  CHECK(read("{\"name\": \"Anna\", \"age\": 7}") == Answer{"{\"name\": \"Anna\", \"age\": 7}", {}});
  CHECK(read("{\"answer\": [1, 2]} and more") == Answer{"{\"answer\": [1, 2]} and more", {}});
  CHECK(read("[1] says {\"name\": \"time\"}") == Answer{"[1] says {\"name\": \"time\"}", {}});
  CHECK(read("Use {\"name\": \"time\"}") == Answer{"Use {\"name\": \"time\"}", {}});
  CHECK(read("{\"a\"") == Answer{"{\"a\"", {}});
  CHECK(read("  ") == Answer{"  ", {}});
}

TEST_CASE("text after a call is content") {
  const std::vector<Call> time = {{"time", "{}"}};
  CHECK(
      ReadCutAnywhere(ToolFamily::kMistral,
                      "[TOOL_CALLS] [{\"name\": \"time\", \"arguments\": {}}]\n\nOne moment, [") ==
      Answer{"One moment, [", time});
  CHECK(ReadCutAnywhere(ToolFamily::kMistral,
                        "[TOOL_CALLS][{\"name\": \"time\"}] [TOOL_CALLS][{\"name\": \"time\"}]") ==
        Answer{"", {time[0], time[0]}});
  CHECK(ReadCutAnywhere(ToolFamily::kMistralArgs, "[TOOL_CALLS]time[ARGS]{}\n\nOne moment.\n") ==
        Answer{"One moment.\n", time});
  CHECK(ReadCutAnywhere(ToolFamily::kMistralArgs,
                        "[TOOL_CALLS]time[ARGS]{} [TOOL_CALLS] that was it") ==
        Answer{"[TOOL_CALLS] that was it", time});
  CHECK(ReadCutAnywhere(ToolFamily::kMistralArgs, "[TOOL_CALLS]time[ARGS]{} [TOOL_") ==
        Answer{"[TOOL_", time});
  CHECK(ReadCutAnywhere(ToolFamily::kJson, "{\"name\": \"time\"}\nIt is {late}.") ==
        Answer{"It is {late}.", time});
  CHECK(ReadCutAnywhere(ToolFamily::kJson, "{\"name\": \"time\"}; {\"name\": \"Anna\"} is new") ==
        Answer{"{\"name\": \"Anna\"} is new", time});
  CHECK(ReadCutAnywhere(ToolFamily::kJson,
                        "<|python_tag|>{\"name\": \"time\"}<|python_tag|>{\"name\": \"time\"}") ==
        Answer{"", {time[0], time[0]}});
}

TEST_CASE("a second call that is cut off at its beginning is dropped") {
  const Answer time = {"", {{"time", "{}"}}};
  for (const std::string cut : {"{", "{\"na", "{\"name\": \"ti"}) {
    CHECK(ReadCutAnywhere(ToolFamily::kJson, "{\"name\": \"time\"}; " + cut) == time);
    CHECK(ReadCutAnywhere(ToolFamily::kMistral, "[TOOL_CALLS][{\"name\": \"time\"}, " + cut) ==
          time);
  }
}

TEST_CASE("an empty list is not a call") {
  for (const std::string text : {"[]", " [ ] is empty"}) {
    CHECK(ReadCutAnywhere(ToolFamily::kJson, text) == Answer{text, {}});
  }
  CHECK(ReadCutAnywhere(ToolFamily::kMistral, "[TOOL_CALLS] [] none") ==
        Answer{"[TOOL_CALLS] [] none", {}});
}

TEST_CASE("without parallel calls, the first call is the last") {
  const Answer one = {"", {{"time", "{}"}}};
  CHECK(ReadCutAnywhere(ToolFamily::kHermes,
                        "<tool_call>{\"name\": \"time\"}</tool_call>\n<tool_call>{\"name\": "
                        "\"time\"}</tool_call> text",
                        false) == one);
  CHECK(ReadCutAnywhere(ToolFamily::kMistral,
                        "[TOOL_CALLS][{\"name\": \"time\"}, {\"name\": \"x\"}]", false) == one);
  CHECK(ReadCutAnywhere(ToolFamily::kMistralArgs,
                        "[TOOL_CALLS]time[ARGS]{}[TOOL_CALLS]time[ARGS]{}", false) == one);
  CHECK(ReadCutAnywhere(ToolFamily::kJson, "{\"name\": \"time\"};{\"name\": \"time\"}", false) ==
        one);

  ToolCallParser parser({.family = ToolFamily::kHermes, .parallel = false}, "key");
  ToolCallParser::Output out;
  parser.Push("<tool_call>{\"name\": \"time\", \"arguments\": {", &out);
  CHECK_FALSE(parser.done());
  parser.Push("}}", &out);
  CHECK(parser.done());
}

TEST_CASE("arguments are passed on as written") {
  ToolCallParser parser({.family = ToolFamily::kHermes}, "key");
  ToolCallParser::Output out;
  parser.Push("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\"", &out);
  REQUIRE(out.calls.size() == 1);
  CHECK(out.calls[0].name == "f");
  CHECK(out.calls[0].arguments == "{\"a\"");
  out = {};
  parser.Push(": 1", &out);
  REQUIRE(out.calls.size() == 1);
  CHECK(out.calls[0].name.empty());
  CHECK(out.calls[0].arguments == ": 1");
}

}  // namespace
}  // namespace stagecoach::router
