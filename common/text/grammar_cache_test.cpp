#include "common/text/grammar_cache.h"

#include <fmt/format.h>

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

constexpr size_t kPlenty = size_t{1} << 30;

// Grammars of equal size, one for each i.
GrammarSource Numbered(int i) { return Regex(fmt::format("a{}", i % 10)); }
size_t BytesOfOne() { return Vocabulary()->Compile(Numbered(0)).value()->n_bytes(); }

TEST_CASE("A grammar is compiled once while there is room; the least recently used is dropped") {
  int n_compiled = 0;
  GrammarCache cache(Vocabulary(), BytesOfOne() * 5 / 2, [&](const GrammarSource&) {
    ++n_compiled;
    return absl::OkStatus();
  });
  for (const int i : {0, 1, 0, 1}) REQUIRE(cache.Get(Numbered(i)).ok());
  CHECK(n_compiled == 2);
  for (const int i : {0, 2, 0}) REQUIRE(cache.Get(Numbered(i)).ok());  // 1 was used least recently
  CHECK(n_compiled == 3);
  REQUIRE(cache.Get(Numbered(1)).ok());
  CHECK(n_compiled == 4);
}

TEST_CASE("Grammars in use count towards the limit, cached or not") {
  GrammarCache cache(Vocabulary(), BytesOfOne() * 5 / 2);
  auto first = cache.Get(Numbered(0)).value();
  const auto second = cache.Get(Numbered(1)).value();
  for (int i = 2; i < 5; ++i) {
    CHECK(absl::IsResourceExhausted(cache.Get(Numbered(i)).status()));
  }
  first = nullptr;
  CHECK(cache.Get(Numbered(2)).ok());
}

TEST_CASE("The cache key includes the kind and the whitespace option") {
  GrammarCache cache(Vocabulary(), kPlenty);
  const auto regex = cache.Get(Regex("[\"a\"]")).value();
  const auto choice = cache.Get({.kind = GrammarKind::kChoice, .text = "[\"a\"]"}).value();
  CHECK(regex != choice);
  const GrammarSource object{.kind = GrammarKind::kJsonObject};
  GrammarSource spaced = object;
  spaced.any_whitespace = true;
  CHECK(cache.Get(object).value() != cache.Get(spaced).value());
}

TEST_CASE("A refused grammar is refused every time") {
  GrammarCache cache(Vocabulary(), kPlenty);
  for (int i = 0; i < 3; ++i) {
    CHECK(cache.Get(Regex("(")).status().code() == absl::StatusCode::kInvalidArgument);
  }
}

TEST_CASE("The callback after compiling runs once per grammar and may refuse it") {
  int n_called = 0;
  GrammarCache cache(Vocabulary(), kPlenty, [&](const GrammarSource& source) {
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

TEST_CASE("Threads that request the same grammar at once get the same object") {
  GrammarCache cache(Vocabulary(), kPlenty);
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
