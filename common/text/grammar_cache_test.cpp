#include "common/text/grammar_cache.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/text/test_support.h"

namespace stagecoach::text {
namespace {

std::shared_ptr<const GrammarVocabulary> Vocabulary() {
  const auto tokenizer = Tokenizer::Load(TestData("byte_level")).value();
  const int32_t eos[] = {1};
  return GrammarVocabulary::Make(MakeTokenTable(*tokenizer, tokenizer->vocab_size(), eos).value())
      .value();
}

GrammarSource Regex(std::string text) { return {.kind = GrammarKind::kRegex, .text = text}; }

TEST_CASE("A grammar is compiled once while it is in use, and forgotten when others are used") {
  GrammarCache cache(Vocabulary(), 2);
  const auto a = cache.Get(Regex("a")).value();
  const auto b = cache.Get(Regex("b")).value();
  CHECK(a != b);
  CHECK(cache.Get(Regex("a")).value() == a);
  REQUIRE(cache.Get(Regex("c")).ok());  // b was used least lately
  CHECK(cache.Get(Regex("a")).value() == a);
  CHECK(cache.Get(Regex("b")).value() != b);
}

TEST_CASE("The kind and the whitespace belong to a grammar's name") {
  GrammarCache cache(Vocabulary(), 8);
  const auto regex = cache.Get(Regex("[\"a\"]")).value();
  const auto choice = cache.Get({.kind = GrammarKind::kChoice, .text = "[\"a\"]"}).value();
  CHECK(regex != choice);
  const GrammarSource object{.kind = GrammarKind::kJsonObject};
  GrammarSource spaced = object;
  spaced.any_whitespace = true;
  CHECK(cache.Get(object).value() != cache.Get(spaced).value());
}

TEST_CASE("A refused grammar is refused every time") {
  GrammarCache cache(Vocabulary(), 2);
  for (int i = 0; i < 3; ++i) {
    CHECK(cache.Get(Regex("(")).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("What comes after compiling is done once, and may refuse") {
  int n_called = 0;
  GrammarCache cache(Vocabulary(), 4, [&](const GrammarSource& source) {
    ++n_called;
    return source.text == "b" ? absl::UnavailableError("no b today") : absl::OkStatus();
  });
  for (int i = 0; i < 2; ++i) CHECK(cache.Get(Regex("a")).ok());
  CHECK(n_called == 1);
  for (int i = 0; i < 2; ++i) CHECK(absl::IsUnavailable(cache.Get(Regex("b")).status()));
  CHECK(n_called == 3);
  CHECK_FALSE(cache.Get(Regex("(")).ok());
  CHECK(n_called == 3);
}

TEST_CASE("Threads that ask for one grammar at once get the same") {
  GrammarCache cache(Vocabulary(), 4);
  std::vector<std::shared_ptr<const Grammar>> found(8);
  {
    std::vector<std::jthread> threads;
    for (auto& one : found) {
      threads.emplace_back([&] { one = cache.Get(Regex("[a-z]{1,50}")).value(); });
    }
  }
  for (const auto& one : found) CHECK(one == found[0]);
}

}  // namespace
}  // namespace stagecoach::text
