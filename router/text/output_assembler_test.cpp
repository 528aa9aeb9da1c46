#include "router/text/output_assembler.h"

#include <string>
#include <vector>

#include "catch2/catch_test_macros.hpp"
#include "common/text/utf8.h"
#include "router/text/testing/test_model.h"

namespace stagecoach::router {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  size_t n_tokens = 0;
};

Outcome Assemble(const std::shared_ptr<const text::Tokenizer>& tokenizer,
                 const std::vector<int32_t>& ids, const std::vector<std::string>& stops,
                 uint32_t min_tokens = 0) {
  OutputAssembler assembler(tokenizer, true, stops, min_tokens);
  Outcome outcome;
  for (const int32_t id : ids) {
    const std::string piece = assembler.Push(id);
    CHECK(text::IsUtf8(piece));
    outcome.text += piece;
    ++outcome.n_tokens;
    if (assembler.stop() != nullptr) break;
  }
  outcome.text += assembler.End();
  if (assembler.stop() != nullptr) outcome.stop = *assembler.stop();
  return outcome;
}

const std::string kText = "Ünïcode 🚂 and plain: 日本語 — done. The END is near";

TEST_CASE("the pieces add up to the decoded text") {
  for (const char* name : {"byte_level", "byte_fallback"}) {
    const auto tokenizer = TestTokenizer(name);
    const auto ids = *tokenizer->Encode(kText, false);
    CHECK(Assemble(tokenizer, ids, {}).text == *tokenizer->Decode(ids, true));
    CHECK(Assemble(tokenizer, ids, {"not in it", "日本国"}).text == *tokenizer->Decode(ids, true));
    // An incomplete character at the end is replaced, as in decoding all tokens at once.
    for (size_t n = 1; n < ids.size(); ++n) {
      const std::vector<int32_t> some(ids.begin(), ids.begin() + n);
      CHECK(Assemble(tokenizer, some, {"zzz"}).text == *tokenizer->Decode(some, true));
    }
  }
}

TEST_CASE("every part of the text is found as a stop string, also across tokens") {
  for (const char* name : {"byte_level", "byte_fallback"}) {
    const auto tokenizer = TestTokenizer(name);
    const auto ids = *tokenizer->Encode(kText, false);
    const std::string whole = *tokenizer->Decode(ids, true);
    for (size_t begin = 0; begin < whole.size(); ++begin) {
      for (size_t size : {1, 2, 5, 12}) {
        const std::string stop = whole.substr(begin, size);
        if (!text::IsUtf8(stop)) continue;
        const Outcome outcome = Assemble(tokenizer, ids, {stop});
        REQUIRE(outcome.stop == stop);
        REQUIRE(outcome.text == whole.substr(0, whole.find(stop)));
      }
    }
  }
}

TEST_CASE("tokens after the stop string are not consumed") {
  const auto tokenizer = TestTokenizer("byte_level");
  const auto head = *tokenizer->Encode("0:1:2", false);
  auto ids = head;
  ids.insert(ids.end(), 5, 19);
  const Outcome outcome = Assemble(tokenizer, ids, {":2"});
  CHECK(outcome.text == "0:1");
  CHECK(outcome.n_tokens == head.size());
}

TEST_CASE("stop strings before min_tokens are plain text") {
  const auto tokenizer = TestTokenizer("byte_level");
  const std::vector<int32_t> ids = {35, 36, 35, 36, 35, 36};  // A B A B A B
  CHECK(Assemble(tokenizer, ids, {"B"}, 0).text == "A");
  CHECK(Assemble(tokenizer, ids, {"B"}, 2).text == "A");
  CHECK(Assemble(tokenizer, ids, {"B"}, 3).text == "ABA");
  CHECK(Assemble(tokenizer, ids, {"AB"}, 6).text == "ABABAB");
}

TEST_CASE("special tokens are not part of the text") {
  const auto tokenizer = TestTokenizer("byte_level");
  CHECK(Assemble(tokenizer, {35, 1, 36}, {"AB"}).stop == "AB");
}

}  // namespace
}  // namespace stagecoach::router
