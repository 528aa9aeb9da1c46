#include "router/text/json_events.h"

#include <boost/json.hpp>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/text/utf8.h"

namespace stagecoach::router {
namespace {

using Source = JsonEventParser::Source;
using Values = std::map<std::string, std::string>;  // per path

JsonPaths Paths(std::vector<std::string> paths) { return JsonPaths::Parse(paths).value(); }

// The values of `pieces`, parsed one after another.
Values Read(const JsonPaths& paths, Source source, const std::vector<std::string_view>& pieces) {
  JsonEventParser parser(&paths, source);
  Values values;
  for (const std::string_view piece : pieces) {
    std::vector<JsonEvent> events;
    parser.Push(piece, &events);
    for (const JsonEvent& event : events) {
      if (!text::IsUtf8(event.delta) || !text::IsUtf8(event.path)) FAIL(event.path);
      values[event.path] += event.delta;
    }
  }
  return values;
}

// Requires the same values for every cut into two pieces, and byte by byte.
Values ReadCutAnywhere(const JsonPaths& paths, Source source, std::string_view text) {
  const Values whole = Read(paths, source, {text});
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    bytes.push_back(text.substr(i, 1));
    if (Read(paths, source, {text.substr(0, i), text.substr(i)}) != whole) {
      FAIL("cut at byte " << i << " of " << text);
    }
  }
  if (Read(paths, source, bytes) != whole) FAIL("byte by byte: " << text);
  return whole;
}

Values Prompted(std::string_view text, std::vector<std::string> paths = {}) {
  return ReadCutAnywhere(Paths(std::move(paths)), Source::kPrompted, text);
}

Values Constrained(std::string_view text, std::vector<std::string> paths = {}) {
  return ReadCutAnywhere(Paths(std::move(paths)), Source::kConstrained, text);
}

TEST_CASE("a too long property name ends the JSON events") {
  const std::string name(5000, '=');
  CHECK(Read(Paths({}), Source::kConstrained, {R"({"a":1,")", name, R"(":[0,0,0],"b":2})"}) ==
        Values{{"/a", "1"}});
  const std::string fits(4000, '=');
  CHECK(Read(Paths({}), Source::kConstrained, {R"({")", fits, R"(":[0]})"}) ==
        Values{{"/" + fits + "/0", "0"}});
}

TEST_CASE("events contain a document's values, but not its property names") {
  CHECK(Constrained(R"({"answer":"Good morning","n":-1.5e3,"ok":true,"x":null})") ==
        Values{{"/answer", "Good morning"}, {"/n", "-1.5e3"}, {"/ok", "true"}, {"/x", "null"}});
  CHECK(Constrained(R"({"a":[1,[2,{"b":"c"}],[]],"d":{},"e":""})") ==
        Values{{"/a/0", "1"}, {"/a/1/0", "2"}, {"/a/1/1/b", "c"}, {"/e", ""}});
  CHECK(Constrained(R"("alone")") == Values{{"", "alone"}});
  CHECK(Constrained(" 17 ") == Values{{"", "17"}});
  CHECK(Constrained("[[], false]") == Values{{"/1", "false"}});
  CHECK(Constrained(R"({"a/b":{"~c":1},"":2})") == Values{{"/a~1b/~0c", "1"}, {"/", "2"}});
}

TEST_CASE("paths select values, wildcards and everything below") {
  const std::string text = R"({"answer": "Hi", "challenges": [{"title": "A", "n": 1},
      {"title": "B", "steps": ["x", "y"]}], "meta": {"recommend": "json"}})";
  CHECK(Constrained(text, {"/answer"}) == Values{{"/answer", "Hi"}});
  CHECK(Constrained(text, {"/challenges/*/title"}) ==
        Values{{"/challenges/0/title", "A"}, {"/challenges/1/title", "B"}});
  CHECK(Constrained(text, {"/challenges/1"}) == Values{{"/challenges/1/title", "B"},
                                                       {"/challenges/1/steps/0", "x"},
                                                       {"/challenges/1/steps/1", "y"}});
  CHECK(Constrained(text, {"/*/1/steps/*", "/meta"}) == Values{{"/challenges/1/steps/0", "x"},
                                                               {"/challenges/1/steps/1", "y"},
                                                               {"/meta/recommend", "json"}});
  CHECK(Constrained(text, {"/challenges/0/title/deeper", "/nothing"}).empty());
  CHECK(Constrained(text, {"", "/answer"}).size() == 7);
  CHECK(Constrained(R"({"a/b":{"~":1,"x":2}})", {"/a~1b/~0"}) == Values{{"/a~1b/~0", "1"}});
}

TEST_CASE("a document is found inside a code fence and between sentences") {
  const Values hi = {{"/answer", "Hi"}};
  CHECK(Prompted("```json\n{\"answer\": \"Hi\"}\n```") == hi);
  CHECK(Prompted("Here is {the} JSON, as you asked [1]:\n\n```\n{ \"answer\":\n\"Hi\" }\n```\nBye. "
                 "{\"answer\": \"no\"}") == hi);
  CHECK(Prompted("{{\"answer\":\"Hi\"}}") == hi);
  CHECK(Prompted("{\"a\"} {\"answer\":\"Hi\"}") == hi);
  CHECK(Prompted("\n {\"answer\":\"Hi\",}") == hi);
  CHECK(Prompted("[{\"answer\":\"Hi\",},]") == Values{{"/0/answer", "Hi"}});
  CHECK(Prompted("Sure!\n```json\n[[\"a\"]]\n```") == Values{{"/0/0", "a"}});
  CHECK(Prompted("As [\"he\"] said: {\"answer\":\"Hi\"}") == hi);
  CHECK(Prompted("[{\"answer\":\"Hi\"}]", {"/answer"}) == hi);
  CHECK(Prompted("First {\"note\": 1}, then {\"answer\":\"Hi\"}", {"/answer"}) == hi);
  CHECK(Prompted("No JSON at all: [1], {x}, 17, \"text\".").empty());
}

TEST_CASE("a truncated document gives the values up to the cut") {
  CHECK(Constrained(R"({"a":"x\u00)") == Values{{"/a", "x"}});
  CHECK(Constrained(R"({"a":"x","b":[1,2)") == Values{{"/a", "x"}, {"/b/0", "1"}, {"/b/1", "2"}});
  CHECK(Constrained(R"({"a":"x","b)") == Values{{"/a", "x"}});
  CHECK(Constrained(R"({"a":tru)").empty());
}

TEST_CASE("no events follow after text that is not JSON") {
  CHECK(Constrained(R"({"a":"x" "b":"y"})") == Values{{"/a", "x"}});
  CHECK(Constrained(R"({"a":[1}, "b": 2})") == Values{{"/a/0", "1"}});
  CHECK(Prompted(R"({"a": "x", 'b': "y"} {"a": "z"})") == Values{{"/a", "x"}});
  CHECK(Constrained(std::string(10'000, '[')).empty());
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += R"({"a":)";
  CHECK(Constrained(deep + "1").empty());
}

TEST_CASE("deltas of one value are merged, in the order of the text") {
  const JsonPaths paths = Paths({});
  JsonEventParser parser(&paths, Source::kConstrained);
  std::vector<JsonEvent> events;
  parser.Push(R"({"a":"x\ny\u0041z","b":"")", &events);
  REQUIRE(events.size() == 2);
  CHECK(events[0].path == "/a");
  CHECK(events[0].delta == "x\nyAz");
  CHECK(events[1].path == "/b");
  CHECK(events[1].delta.empty());
  parser.Push(R"(,"c":12)", &events);
  parser.Push(R"(3}})", &events);
  REQUIRE(events.size() == 4);
  CHECK(events[3].path == "/c");
  CHECK(events[3].delta == "3");
  CHECK(parser.complete());
}

// Random documents with all kinds of values, and their expected values.
class RandomDocument {
 public:
  explicit RandomDocument(uint32_t seed) : random_(seed) { Value("", 0); }

  const std::string& text() const { return text_; }
  const Values& values() const { return values_; }

 private:
  uint32_t Pick(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void Blank() {
    while (Pick(4) == 0) text_ += " \n\t\r"[Pick(4)];
  }

  std::string Characters() {
    static const std::vector<std::string> kCharacters = {"a",    "Z",  " ",  "\"", "\\", "/",
                                                         "\n",   "\t", "\b", "é",  "日", "😀",
                                                         "\x01", "{",  "]",  "~",  ":"};
    std::string characters;
    for (uint32_t n = Pick(7); n > 0; --n) characters += kCharacters[Pick(kCharacters.size())];
    return characters;
  }

  // Writes a JSON string, with some unnecessary escapes.
  void String(const std::string& characters) {
    const std::string plain = boost::json::serialize(boost::json::string(characters));
    std::string out;
    for (size_t i = 0; i < plain.size(); ++i) {
      const auto byte = static_cast<unsigned char>(plain[i]);
      if (byte == 0xF0 && Pick(2) == 0) {
        out += Pick(2) == 0 ? "\\ud83d\\ude00" : "\\uD83D\\uDE00";
        i += 3;
      } else if (byte == 0xC3 && Pick(2) == 0) {
        out += "\\u00e9";
        i += 1;
      } else if (plain[i] == 'Z' && Pick(2) == 0) {
        out += "\\u005a";
      } else {
        out += plain[i];
      }
    }
    text_ += out;
  }

  void Value(const std::string& path, int depth) {
    Blank();
    static const char* const kScalars[] = {"0",        "-1",   "12.5",  "1e-9",
                                           "-0.25E+3", "true", "false", "null"};
    const uint32_t kind = Pick(depth == 0 ? 2 : depth < 4 ? 5 : 3);
    if (kind == 0 && depth < 4) {
      text_ += '{';
      const uint32_t n = Pick(4);
      for (uint32_t i = 0; i < n; ++i) {
        if (i > 0) text_ += ',';
        Blank();
        const std::string key = std::to_string(i) + Characters();  // keys are unique
        String(key);
        Blank();
        text_ += ':';
        std::string below = path + "/";
        AppendPointerSegment(key, &below);
        Value(below, depth + 1);
      }
      Blank();
      text_ += '}';
    } else if (kind == 1 && depth < 4) {
      text_ += '[';
      const uint32_t n = Pick(4);
      for (uint32_t i = 0; i < n; ++i) {
        if (i > 0) text_ += ',';
        Value(path + "/" + std::to_string(i), depth + 1);
      }
      Blank();
      text_ += ']';
    } else if (kind == 2) {
      const char* const scalar = kScalars[Pick(std::size(kScalars))];
      text_ += scalar;
      values_[path] = scalar;
    } else {
      values_[path] = Characters();
      String(values_[path]);
    }
    Blank();
  }

  std::mt19937 random_;
  std::string text_;
  Values values_;
};

TEST_CASE("a document that is split at any byte gives the same values as a parser") {
  const JsonPaths all = Paths({});
  for (uint32_t seed = 0; seed < 400; ++seed) {
    const RandomDocument document(seed);
    INFO(document.text());
    boost::system::error_code error;
    boost::json::parse(document.text(), error);
    REQUIRE(!error);
    REQUIRE(ReadCutAnywhere(all, Source::kConstrained, document.text()) == document.values());
    if (document.values().empty()) continue;
    const std::string fenced = "Well:\n```json\n" + document.text() + "\n```\nThat is \"all\".";
    const Values prompted = ReadCutAnywhere(all, Source::kPrompted, fenced);
    // An array of scalars is taken for brackets of a sentence.
    const size_t first = document.text().find_first_not_of(" \n\t\r");
    const size_t second = document.text().find_first_not_of(" \n\t\r", first + 1);
    const bool is_document =
        document.text()[first] == '{' ||
        std::string_view("{[\"").find(document.text()[second]) != std::string_view::npos;
    if (is_document) REQUIRE(prompted == document.values());
  }
}

TEST_CASE("invalid paths are refused") {
  const auto refusal = [](std::vector<std::string> paths) {
    const auto parsed = JsonPaths::Parse(paths);
    REQUIRE(absl::IsInvalidArgument(parsed.status()));
    return std::string(parsed.status().message());
  };
  CHECK(refusal({"/a", "answer"}).starts_with("paths[1]: must begin with '/'"));
  CHECK(refusal({"/a~2"}).starts_with("paths[0]: "));
  CHECK(refusal({"/a~"}).starts_with("paths[0]: "));
  CHECK(refusal({"/\xff"}).starts_with("paths[0]: "));
  CHECK(refusal({"/" + std::string(2000, 'a')}).starts_with("paths[0]: "));
  CHECK(refusal(std::vector<std::string>(65, "/a")).starts_with("paths: "));
}

}  // namespace
}  // namespace stagecoach::router
