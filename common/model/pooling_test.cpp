#include "common/model/pooling.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

#include "common/temp_dir.h"

namespace stagecoach {
namespace {

constexpr char kModules[] = R"([
  {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
  {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
  {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"}
])";
constexpr char kLastToken[] = R"({"word_embedding_dimension": 64, "pooling_mode_cls_token": false,
  "pooling_mode_mean_tokens": false, "pooling_mode_lasttoken": true, "include_prompt": true})";

absl::StatusOr<std::optional<PoolingSpec>> Read(std::string_view modules,
                                                std::string_view pooling) {
  TempDir dir;
  if (!modules.empty()) dir.Write("modules.json", modules);
  if (!pooling.empty()) dir.Write("1_Pooling/config.json", pooling);
  return ReadPooling(dir.path());
}

PoolingSpec MustRead(std::string_view modules, std::string_view pooling) {
  const auto read = Read(modules, pooling);
  INFO(read.status());
  REQUIRE(read.ok());
  REQUIRE(read->has_value());
  return **read;
}

TEST_CASE("the modules of sentence-transformers say how a model pools") {
  const PoolingSpec last = MustRead(kModules, kLastToken);
  CHECK_FALSE(last.mean);
  CHECK(last.normalize);
  const PoolingSpec mean = MustRead(R"([
    {"type": "sentence_transformers.base.modules.transformer.Transformer", "path": ""},
    {"type": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
     "path": "1_Pooling"}])",
                                    R"({"embedding_dimension": 64, "pooling_mode": "mean"})");
  CHECK(mean.mean);
  CHECK_FALSE(mean.normalize);
}

TEST_CASE("a model without a pooling step generates text") {
  for (const char* modules :
       {"", R"([{"type": "a.Transformer"}, {"type": "b.LogitScore", "path": "1_LogitScore"}])"}) {
    const auto read = Read(modules, "");
    REQUIRE(read.ok());
    CHECK_FALSE(read->has_value());
  }
}

TEST_CASE("steps and kinds of pooling that are not offered are named") {
  const auto error = [](std::string_view modules, std::string_view pooling) {
    return std::string(Read(modules, pooling).status().message());
  };
  const auto has = [](const std::string& text, std::string_view part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(error(kModules, R"({"pooling_mode_cls_token": true})"), "it is cls");
  has(error(kModules, R"({"pooling_mode_mean_tokens": true, "pooling_mode_lasttoken": true})"),
      "mean and lasttoken");
  has(error(kModules, "{}"), "not named");
  has(error(kModules, ""), "1_Pooling/config.json");
  has(error(R"([{"type": "m.Transformer"}, {"type": "m.Pooling", "path": "1_Pooling"},
                {"type": "m.Dense", "path": "2_Dense"}])",
            kLastToken),
      "\"Dense\"");
  has(error("{}", ""), "not a JSON array");
  has(error("[3]", ""), "has no \"type\"");
}

}  // namespace
}  // namespace stagecoach
