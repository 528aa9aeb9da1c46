#include "common/text/embedding_rows.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

#include "common/text/test_support.h"

namespace stagecoach::text {
namespace {

using Catch::Matchers::ContainsSubstring;

// Loads the tokenizer of vocab_merges/ with one extra special token, which may have a role.
std::shared_ptr<const Tokenizer> WithOneMore(const std::string& role) {
  const TempDir dir;
  dir.Write("vocab.json", ReadFile(TestData("vocab_merges/vocab.json")));
  dir.Write("merges.txt", ReadFile(TestData("vocab_merges/merges.txt")));
  boost::json::object config = {{"additional_special_tokens", {"<more>"}}};
  if (!role.empty()) config[role] = "<more>";
  dir.Write("tokenizer_config.json", boost::json::serialize(config));
  return Tokenizer::Load(dir.path()).value();
}

TEST_CASE("A token without an embedding row is refused, and the error says how to fix it") {
  const auto tokenizer = WithOneMore("");
  const int32_t n = tokenizer->vocab_size();
  CHECK(CheckEmbeddingRows(*tokenizer, n).ok());
  CHECK(CheckEmbeddingRows(*tokenizer, n + 64).ok());
  const auto status = CheckEmbeddingRows(*tokenizer, n - 1);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("no row for " + std::to_string(n - 1) + " (\"<more>\")") &&
                 ContainsSubstring("resize_token_embeddings(" + std::to_string(n) + ")") &&
                 ContainsSubstring("remove that token"));
  CHECK_THAT(std::string(CheckEmbeddingRows(*tokenizer, n - 9).message()),
             ContainsSubstring(" and 4 more. ") && ContainsSubstring("remove those tokens"));
}

TEST_CASE("A pad token without a row is refused, an image or audio token is not") {
  for (const char* role : {"pad_token", "eos_token", "mask_token"}) {
    const auto tokenizer = WithOneMore(role);
    CHECK_FALSE(CheckEmbeddingRows(*tokenizer, tokenizer->vocab_size() - 1).ok());
  }
  for (const char* role : {"image_token", "audio_token"}) {
    const auto tokenizer = WithOneMore(role);
    CHECK(CheckEmbeddingRows(*tokenizer, tokenizer->vocab_size() - 1).ok());
    CHECK_FALSE(CheckEmbeddingRows(*tokenizer, tokenizer->vocab_size() - 2).ok());
  }
}

}  // namespace
}  // namespace stagecoach::text
