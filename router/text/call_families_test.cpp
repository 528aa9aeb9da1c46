// Reads calls of the families that have no JSON object around a call.
#include <string>
#include <string_view>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "router/text/testing/cut_text.h"
#include "router/text/tool_calls.h"

namespace stagecoach::router {
namespace {

struct Answer {
  std::string content;
  std::vector<std::string> calls;  // name and arguments
  friend bool operator==(const Answer&, const Answer&) = default;
};

const ToolSchemas kTools = std::make_shared<ToolSchemaList>(
    ToolSchemaList{{"f", R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"},
              "b": {"type": "boolean"}, "o": {"type": "object"}, "l": {"type": "array"},
              "m": {"type": ["string", "null"]}}})"},
                   {"g", ""}});

Answer ReadOnce(ToolFamily family, const Pieces& pieces, bool parallel) {
  ToolCallParser parser({.family = family, .tools = kTools, .parallel = parallel}, "key");
  Answer answer;
  const auto take = [&](const ToolCallParser::Output& out) {
    answer.content += out.content;
    for (const ToolCallPiece& piece : out.calls) {
      if (!piece.name.empty()) answer.calls.push_back(piece.name + " ");
      REQUIRE(piece.index + 1 == answer.calls.size());
      answer.calls.back() += piece.arguments;
    }
  };
  ReadPieces(parser, pieces, take);
  return answer;
}

Answer Read(ToolFamily family, std::string_view text, bool parallel = true) {
  return ReadCutAnywhere(text,
                         [&](const Pieces& pieces) { return ReadOnce(family, pieces, parallel); });
}

TEST_CASE("Qwen with tags: values have the types of the schema") {
  const auto read = [](std::string_view text) { return Read(ToolFamily::kQwenXml, text); };
  CHECK(
      read("I look.\n\n<tool_call>\n<function=f>\n<parameter=s>\n5 \"<b>\"\n\n</parameter>\n"
           "<parameter=n>\n5\n</parameter>\n<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n"
           "{\"a\": [1]}\n</parameter>\n<parameter=x>\n1.5\n</parameter>\n</function>\n"
           "</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>") ==
      Answer{"I look.",
             {R"(f {"s": "5 \"<b>\"\n", "n": 5, "b": true, "o": {"a": [1]}, "x": 1.5})", "g {}"}});
  CHECK(read("<tool_call><function=f><parameter=m>null</parameter></function></tool_call> ok") ==
        Answer{"ok", {R"(f {"m": null})"}});
  CHECK(read("<tool_call><function=f><parameter=m>nullify</parameter><parameter=n>many</parameter>"
             "<parameter=s></parameter></function></tool_call>") ==
        Answer{"", {R"(f {"m": "nullify", "n": "many", "s": ""})"}});
  // Two functions in one tag.
  CHECK(read("<tool_call>\n<function=g>\n</function>\n<function=g>\n</function>\n</tool_call>") ==
        Answer{"", {"g {}", "g {}"}});
}

TEST_CASE("Qwen with tags: calls that break or are cut off") {
  const auto read = [](std::string_view text) { return Read(ToolFamily::kQwenXml, text); };
  for (const std::string text :
       {"a <tool_call> and more", "<tool_call>\n<functional", "<tool_call>\n<function=a b>",
        "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>\n<function=f", "x <tool_ca"}) {
    CHECK(read(text) == Answer{text, {}});
  }
  CHECK(read("<tool_call><function=f><parameter=s>ab</para") ==
        Answer{"", {"f {\"s\": \"ab</para"}});
  CHECK(read("<tool_call><function=f><parameter=n>12") == Answer{"", {"f {\"n\": 12"}});
  CHECK(read("<tool_call><function=f><parameter=n>12</parameter>oops</function></tool_call>") ==
        Answer{"oops</function></tool_call>", {"f {\"n\": 12}"}});
  CHECK(read("<tool_call><function=g></function>oops") == Answer{"oops", {"g {}"}});
  const std::string long_name(300, 'f');
  CHECK(read("<tool_call><function=" + long_name + ">").calls.empty());
}

TEST_CASE("GLM: names and values in tags of their own") {
  const auto read = [](std::string_view text) { return Read(ToolFamily::kGlm, text); };
  CHECK(read("\nLook.\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value> 5\n</arg_value>\n<arg_key>l"
             "</arg_key>\n<arg_value>[1, \"a\"]</arg_value>\n</tool_call>\n<tool_call>g\n"
             "</tool_call>") == Answer{"\nLook.", {R"(f {"s": " 5\n", "l": [1, "a"]})", "g {}"}});
  CHECK(read("<tool_call>f<arg_key>n</arg_key><arg_value>7</arg_value></tool_call>") ==
        Answer{"", {R"(f {"n": 7})"}});
  CHECK(read("<tool_call>f\n<arg_key>n</arg_key>\nx") == Answer{"\nx", {R"(f {"n": null})"}});
  CHECK(read("<tool_call>what is it\n") == Answer{"<tool_call>what is it\n", {}});
}

TEST_CASE("Seed: values on no lines of their own, collections also as in Python") {
  const auto read = [](std::string_view text) { return Read(ToolFamily::kSeed, text); };
  CHECK(read("Look.\n<seed:tool_call>\n<function=f>\n<parameter=s>\n['a']</parameter>\n"
             "<parameter=l>['a', 5, None]</parameter>\n<parameter=o>{'k': True}</parameter>\n"
             "</function>\n</seed:tool_call>\n<seed:tool_call>\n<function=g>\n</function>\n"
             "</seed:tool_call>") ==
        Answer{"Look.", {R"(f {"s": "\n['a']", "l": ["a", 5, null], "o": {"k": true}})", "g {}"}});
  CHECK(read("<seed:tool_call><function=f><parameter=l>['a'</parameter></function>"
             "</seed:tool_call>") == Answer{"", {R"(f {"l": "['a'"})"}});
  CHECK(read("<seed:tool_call>f") == Answer{"<seed:tool_call>f", {}});
}

TEST_CASE("MiniMax: one tag around all calls") {
  const auto read = [](std::string_view text, bool parallel = true) {
    return Read(ToolFamily::kMiniMax, text, parallel);
  };
  const std::string two =
      "Both.\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">a\nb</parameter>\n"
      "<parameter name=\"n\">3</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n"
      "</minimax:tool_call>";
  CHECK(read(two) == Answer{"Both.", {R"(f {"s": "a\nb", "n": 3})", "g {}"}});
  CHECK(read(two, false) == Answer{"Both.", {R"(f {"s": "a\nb", "n": 3})"}});
  CHECK(read("<minimax:tool_call>\n<invoke name=\"g\"></invoke>\nwell") ==
        Answer{"well", {"g {}"}});
  CHECK(read("<minimax:tool_call>\n<invoke>") == Answer{"<minimax:tool_call>\n<invoke>", {}});
}

TEST_CASE("DeepSeek: JSON behind a separator, in a fence or not") {
  for (const ToolFamily family : {ToolFamily::kDeepSeek, ToolFamily::kDeepSeekFenced}) {
    const auto read = [&](std::string_view text) { return Read(family, text); };
    CHECK(read("Hm.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": {\"}\": 1}}"
               "<｜tool▁call▁end｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>"
               "<｜tool▁calls▁end｜>") == Answer{"Hm.", {"f {\"n\": {\"}\": 1}}", "g {}"}});
    CHECK(
        read("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"n\":"
             " 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n"
             "{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>\nDone.") ==
        Answer{"Done.", {"f {\"n\": 1}", "g {}"}});
    for (const std::string text :
         {"<｜tool▁calls▁begin｜> x", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f",
          "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```python\n1"}) {
      CHECK(read(text) == Answer{text, {}});
    }
    CHECK(read("<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"n\": 1") ==
          Answer{"", {"f {\"n\": 1"}});
  }
}

TEST_CASE("Kimi: JSON behind an id with the name") {
  const auto read = [](std::string_view text) { return Read(ToolFamily::kKimi, text); };
  const std::string begin = "<|tool_calls_section_begin|>", end = "<|tool_calls_section_end|>";
  const auto call = [](std::string_view id, std::string_view arguments) {
    return "<|tool_call_begin|>" + std::string(id) + "<|tool_call_argument_begin|>" +
           std::string(arguments) + "<|tool_call_end|>";
  };
  CHECK(read("Hm." + begin + call("functions.f:3", R"({"n": {"}": 1}})") +
             call("functions.g:4", "{}") + end) == Answer{"Hm.", {R"(f {"n": {"}": 1}})", "g {}"}});
  CHECK(read(begin + "\n" + call(" functions.a.b:c:0 ", " {\"s\": \"<|x\"}\n") + "\n" + end +
             "\nDone.") == Answer{"Done.", {R"(a.b:c {"s": "<|x"})"}});
  for (const std::string id : {"functions.f", "f:0", "f"}) {
    CHECK(read(begin + call(id, "{}") + end) == Answer{"", {"f {}"}});
  }
  for (const std::string& text :
       {begin + " x", begin + "<|tool_call_begin|>functions.f:0",
        begin + call("functions.:0", "{}"), begin + call("two words", "{}"),
        begin + call(std::string(300, 'f') + ":0", "{}"), std::string("<|tool_call_begin|>f")}) {
    CHECK(read(text) == Answer{text, {}});
  }
  CHECK(read(begin + "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"n\": 1") ==
        Answer{"", {"f {\"n\": 1"}});
  CHECK(read(begin + call("functions.f:0", "none")) == Answer{"none<|tool_call_end|>", {"f {}"}});
}

TEST_CASE("Nemotron: a list of objects between marks") {
  const auto read = [](std::string_view text, bool parallel = true) {
    return Read(ToolFamily::kNemotron, text, parallel);
  };
  const std::string f = R"({"name": "f", "arguments": {"l": ["]</TOOLCALL>"]}})";
  const std::string g = R"({"name": "g", "arguments": "{}"})";
  const std::vector<std::string> both = {R"(f {"l": ["]</TOOLCALL>"]})", "g {}"};
  const std::string two = "<TOOLCALL>[" + f + ", " + g + "]</TOOLCALL>";
  CHECK(read("Look.\n" + two) == Answer{"Look.", both});
  CHECK(read(two, false) == Answer{"", {both[0]}});
  CHECK(read("<TOOLCALL>\n[ " + f + " ] </TOOLCALL>\n<TOOLCALL>" + g + "</TOOLCALL>\nDone.") ==
        Answer{"Done.", both});
  CHECK(read("<TOOLCALL>[" + g + "]\n well") == Answer{"well", {"g {}"}});
  CHECK(read("<TOOLCALL>[" + g + " and more]") == Answer{"and more]", {"g {}"}});
  for (const std::string text : {"<TOOLCALL>[]</TOOLCALL>", "<TOOLCALL>[1]", "<TOOLCALL>f",
                                 "a <TOOLCALL>[{\"name\": \"f", "<TOOLCAL"}) {
    CHECK(read(text) == Answer{text, {}});
  }
  CHECK(read("<TOOLCALL>[] or " + two) == Answer{"<TOOLCALL>[] or", both});
  CHECK(read("<TOOLCALL>[{\"name\": \"f\", \"arguments\": {\"n\": 1") ==
        Answer{"", {"f {\"n\": 1"}});
}

TEST_CASE("Gemma: literals with a quote of their own") {
  const auto read = [](std::string_view text) { return Read(ToolFamily::kGemma, text); };
  CHECK(
      read(
          "See:<|tool_call>call:f{b:true,l:[1,<|\"|>a, \"b\"<|\"|>],n:-2.5,o:{k:{},z:null},s:<|\"|>"
          "Åre {<|}\n<|\"|>}<tool_call|><|tool_call>call:g{}<tool_call|>") ==
      Answer{"See:",
             {R"(f {"b": true, "l": [1, "a, \"b\""], "n": -2.5, "o": {"k": {}, "z": null}, )"
              R"("s": "Åre {<|}\n"})",
              "g {}"}});
  CHECK(read("<|tool_call>call:f{s:New York,<|\"|>n<|\"|>:1}<tool_call|>done") ==
        Answer{"done", {R"(f {"s": "New York", "n": 1})"}});
  CHECK(read("<|tool_call>f{}") == Answer{"<|tool_call>f{}", {}});
  CHECK(read("<|tool_call>call:f{s:<|\"|>ab<|") == Answer{"", {"f {\"s\": \"ab<|"}});
  CHECK(read("<|tool_call>call:f{o:{n:1]<tool_call|>") ==
        Answer{"]<tool_call|>", {R"(f {"o": {"n": 1}})"}});
}

TEST_CASE("calls as in Python") {
  for (const ToolFamily family : {ToolFamily::kPythonic, ToolFamily::kJson}) {
    const auto read = [&](std::string_view text) { return Read(family, text); };
    CHECK(read("[f(s=\"a \\\"b\\\" \\u00e9\", b=True, n=-1, o={'k': [None, 1.5,],}), g()]") ==
          Answer{"",
                 {R"(f {"s": "a \"b\" \u00e9", "b": true, "n": -1, "o": {"k": [null, 1.5]}})",
                  "g {}"}});
    CHECK(read("<|python_start|>[f(s='it\\'s \\x41\\q \"')]<|python_end|>") ==
          Answer{"", {R"(f {"s": "it's \u0041\\q \""})"}});
    CHECK(read(R"({"name": "g", "parameters": {}})") == Answer{"", {"g {}"}});
    for (const std::string text : {"[f(\"x\")]", "[h(a=1)]", "[f is it]", "[1, 2]", "[f(s", "[f"}) {
      CHECK(read(text) == Answer{text, {}});
    }
    CHECK(read("[f(s=\"ab") == Answer{"", {"f {\"s\": \"ab"}});
    CHECK(read("[g()] That is it.") == Answer{"That is it.", {"g {}"}});
  }
}

}  // namespace
}  // namespace stagecoach::router
