#include "router/text/stop_matcher.h"

#include <random>
#include <vector>

#include "catch2/catch_test_macros.hpp"

namespace stagecoach::router {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome Match(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Outcome outcome;
  for (const std::string& piece : pieces) {
    outcome.text += matcher.Append(piece);
    if (matcher.matched() != nullptr) {
      outcome.stop = *matcher.matched();
      return outcome;
    }
  }
  outcome.text += matcher.Flush();
  return outcome;
}

// The specification of the class, without streaming.
Outcome Oracle(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop) &&
          (longest == nullptr || stop.size() > longest->size())) {
        longest = &stop;
      }
    }
    if (longest != nullptr) return {text.substr(0, end - longest->size()), *longest};
  }
  return {text, ""};
}

TEST_CASE("a stop string is found however the text is split") {
  const std::string text = "one two END three";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    CHECK(Match({"END"}, {text.substr(0, cut), text.substr(cut)}) == Outcome{"one two ", "END"});
  }
}

TEST_CASE("text is held back only while it can become a stop string") {
  const std::vector<std::string> stops = {"</s>", "###"};
  StopMatcher matcher(stops);
  CHECK(matcher.Append("a<") == "a");
  CHECK(matcher.Append("/") == "");
  CHECK(matcher.Append("b") == "</b");
  CHECK(matcher.Append("x##") == "x");
  CHECK(matcher.Append("!") == "##!");
  CHECK(matcher.Append("<<") == "<");
  CHECK(matcher.Append("/s") == "");
  CHECK(matcher.Flush() == "</s");
  CHECK(matcher.Flush() == "");
}

TEST_CASE("the first complete stop string wins, then the longest") {
  CHECK(Match({"abcd", "c"}, {"xabcd"}) == Outcome{"xab", "c"});
  CHECK(Match({"c", "bc"}, {"xabcd"}) == Outcome{"xa", "bc"});
  CHECK(Match({"aab"}, {"aa", "ab"}) == Outcome{"a", "aab"});
}

TEST_CASE("the result does not depend on how the text is split") {
  std::mt19937 random(7);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t i = random() % most + 1; i > 0; --i) text += "ab\xC3\xA9"[random() % 2];
    return text;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = random() % 3 + 1; i > 0; --i) stops.push_back(word(6));
    std::string text;
    std::vector<std::string> pieces;
    for (int i = 0; i < 6; ++i) {
      pieces.push_back(word(4));
      text += pieces.back();
    }
    REQUIRE(Match(stops, pieces) == Oracle(stops, text));
  }
}

}  // namespace
}  // namespace stagecoach::router
