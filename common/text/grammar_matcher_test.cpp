// How matchers follow tokens.
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/text/grammar.h"
#include "common/text/grammar_test_support.h"

namespace stagecoach::text {
namespace {

TEST_CASE("A forbidden token is an error for this matcher only") {
  const GrammarFixture& fixture = ByteLevel();
  const auto grammar = fixture.vocabulary->Compile(Regex("ab")).value();
  const auto good = grammar->NewMatcher().value();
  const auto bad = grammar->NewMatcher().value();
  const int32_t a = *fixture.tokenizer->TokenId("a");
  const int32_t b = *fixture.tokenizer->TokenId("b");
  CHECK(bad->Consume(std::span(&b, 1)).code() == absl::StatusCode::kFailedPrecondition);
  const std::vector<int32_t> both = {a, b};
  REQUIRE(good->Consume(both).ok());
  const Mask end = Next(fixture, *good);
  CHECK(end.may_end);
  CHECK(end.Ids(true) == std::vector<int32_t>{kEos[0], kEos[1]});
  CHECK(good->Consume(std::span(&a, 1)).code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("A matcher that catches up at once equals one that followed each token") {
  const GrammarFixture& fixture = ByteLevel();
  const auto grammar = fixture.vocabulary->Compile(Schema(kPerson)).value();
  const auto followed = grammar->NewMatcher().value();
  std::mt19937 random(7);
  std::vector<int32_t> ids;
  for (;;) {
    const Mask expected = Next(fixture, *followed);
    const auto replayed = grammar->NewMatcher().value();
    REQUIRE(replayed->Consume(ids).ok());
    const Mask mask = Next(fixture, *replayed);
    CHECK(mask.words == expected.words);
    CHECK(mask.may_end == expected.may_end);
    const std::vector<int32_t> others = expected.Ids(false);
    if (others.empty()) break;
    ids.push_back(others[random() % others.size()]);
    REQUIRE(followed->Consume(std::span(&ids.back(), 1)).ok());
  }
  CHECK(ids.size() > 10);
}

TEST_CASE("Threads can follow sequences of one grammar at the same time") {
  const GrammarFixture& fixture = ByteLevel();
  const auto grammar = fixture.vocabulary->Compile(Schema(kPerson)).value();
  std::vector<std::string> alone, together(8);
  const auto write = [&](uint32_t seed) {
    const auto matcher = grammar->NewMatcher().value();
    std::mt19937 random(seed);
    std::vector<int32_t> ids;
    std::vector<uint32_t> words(fixture.vocabulary->n_mask_words());
    while (matcher->Mask(words).ok()) {
      const std::vector<int32_t> others = Mask{.words = words}.Ids(false);
      if (others.empty()) break;
      ids.push_back(others[random() % others.size()]);
      if (!matcher->Consume(std::span(&ids.back(), 1)).ok()) break;
    }
    return fixture.tokenizer->Decode(ids, false).value();
  };
  for (uint32_t seed = 0; seed < 8; ++seed) alone.push_back(write(seed));
  {
    std::vector<std::jthread> threads;
    for (uint32_t seed = 0; seed < 8; ++seed) {
      threads.emplace_back([&, seed] { together[seed] = write(seed); });
    }
  }
  CHECK(together == alone);
}

TEST_CASE("A token of 2000 spaces does no harm") {
  TokenTable table{.kinds = {'\1', '\1'}, .offsets = {0, 1, 2001}, .n_logits = 2};
  table.bytes = "a" + std::string(2000, ' ');
  const auto vocabulary = GrammarVocabulary::Make(table).value();
  const auto matcher = vocabulary->Compile(Regex("[a ]{3}")).value()->NewMatcher().value();
  std::vector<uint32_t> words(1);
  REQUIRE(matcher->Mask(words).ok());
  CHECK(words[0] == 1);
}

}  // namespace
}  // namespace stagecoach::text
