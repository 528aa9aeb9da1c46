#include "router/text/json_string.h"

#include <string>

#include "catch2/catch_test_macros.hpp"
#include "common/text/utf8.h"

namespace stagecoach::router {
namespace {

// Decodes; requires the same result for every pair of cuts.
std::string Decode(std::string_view inside) {
  const std::string text = std::string(inside) + "\"";
  std::string whole;
  JsonStringDecoder decoder;
  REQUIRE(decoder.Push(text + "behind", &whole) == text.size());
  REQUIRE(decoder.closed());
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      std::string cut;
      decoder.Reset();
      for (const std::string_view piece :
           {std::string_view(text).substr(0, a), std::string_view(text).substr(a, b - a),
            std::string_view(text).substr(b)}) {
        std::string part;
        if (!decoder.closed()) decoder.Push(piece, &part);
        CHECK(text::IsUtf8(part));
        cut += part;
      }
      CHECK(cut == whole);
    }
  }
  return whole;
}

TEST_CASE("escapes, surrogates and characters can be split anywhere") {
  CHECK(Decode("") == "");
  CHECK(Decode("plain größer 日本 😀") == "plain größer 日本 😀");
  CHECK(Decode(R"(\"\\\/\b\f\n\r\t)") == "\"\\/\b\f\n\r\t");
  CHECK(Decode(R"(a\u0041\u00e9\u65e5z)") == "aAé日z");
  CHECK(Decode(R"(\ud83d\ude00!)") == "😀!");
  CHECK(Decode(R"(\uD83D\uDE00)") == "😀");
  CHECK(Decode(R"(\u0000)") == std::string(1, '\0'));
}

TEST_CASE("invalid escapes stay readable") {
  CHECK(Decode(R"(\ud83dx)") == "\uFFFDx");
  CHECK(Decode(R"(\ud83d)") == "\uFFFD");
  CHECK(Decode(R"(\ud83d\n)") == "\uFFFD\n");
  CHECK(Decode(R"(\ud83d\ud83d\ude00)") == "\uFFFD😀");
  CHECK(Decode(R"(\ude00)") == "\uFFFD");
  CHECK(Decode(R"(\ud83d\u0041)") == "\uFFFDA");
  CHECK(Decode("line\nbreak\ttab") == "line\nbreak\ttab");
  CHECK(Decode(R"(\alpha \x \ü)") == R"(\alpha \x \ü)");
  CHECK(Decode(R"(\u12xy)") == R"(\u12xy)");
  CHECK(Decode(R"(\u12\n)") == "\\u12\n");
  CHECK(Decode("a\xFFz") == "a\uFFFDz");
  CHECK(Decode("a\xE6\x97") == "a\uFFFD");
  CHECK(Decode("a\xE6\\n") == "a\uFFFD\n");
  CHECK(Decode("\\\xE6\x97\xA5") == "\\日");
}

}  // namespace
}  // namespace stagecoach::router
