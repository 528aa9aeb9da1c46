#include "worker/loader/checkpoint_id.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"

namespace stagecoach::worker {
namespace {

constexpr const char* kHeader =
    R"({"a": {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}})";

std::string IdOf(const std::string& path, const std::string& adapter = "",
                 bool has_weights = true) {
  const auto id = CheckpointId({path, adapter}, has_weights);
  INFO(id.status());
  REQUIRE(id.ok());
  CHECK(id->size() == 32);
  return *id;
}

void WriteModel(const TempDir& dir, const std::string& weights, const std::string& config = "{}") {
  dir.Write("config.json", config);
  dir.Write("model.safetensors", SafetensorsText(kHeader, weights));
}

TEST_CASE("copies of a checkpoint have one id, other checkpoints have others") {
  const std::string weights(1024, 'w');
  TempDir one, copy, trained, configured;
  WriteModel(one, weights);
  WriteModel(copy, weights);
  WriteModel(trained, std::string(1024, 'v'));
  WriteModel(configured, weights, R"({"rope_theta": 5})");
  const std::string id = IdOf(one.path());
  CHECK(IdOf(copy.path()) == id);
  CHECK(IdOf(trained.path()) != id);
  CHECK(IdOf(configured.path()) != id);
  CHECK(IdOf(trained.path(), "", /*has_weights=*/false) == IdOf(one.path(), "", false));
  CHECK(IdOf(one.path(), "", false) != id);
}

TEST_CASE("a merged adapter gives another id") {
  TempDir base, adapter, other;
  WriteModel(base, std::string(1024, 'w'));
  for (const TempDir* dir : {&adapter, &other}) dir->Write("adapter_config.json", R"({"r": 4})");
  adapter.Write("adapter_model.safetensors", SafetensorsText(kHeader, std::string(1024, 'a')));
  other.Write("adapter_model.safetensors", SafetensorsText(kHeader, std::string(1024, 'b')));
  CHECK(IdOf(base.path(), adapter.path()) != IdOf(base.path()));
  CHECK(IdOf(base.path(), adapter.path()) != IdOf(base.path(), other.path()));
}

TEST_CASE("quantizing gives another id, also of made-up weights") {
  TempDir dir;
  WriteModel(dir, std::string(1024, 'w'));
  for (const bool has_weights : {true, false}) {
    const std::string plain = IdOf(dir.path(), "", has_weights);
    const auto int4 = CheckpointId({dir.path(), "", Code::kInt4}, has_weights);
    const auto int8 = CheckpointId({dir.path(), "", Code::kInt8}, has_weights);
    REQUIRE((int4.ok() && int8.ok()));
    CHECK(*int4 != plain);
    CHECK(*int4 != *int8);
  }
}

TEST_CASE("the id of layers depends on them and on what belongs to none") {
  constexpr const char* kNames[] = {"embed.weight", "layers.0.experts.2.w", "layers.1.w",
                                    "layers.2.experts.0.w"};
  const auto id_of_layer_1 = [&](std::string_view changed) {
    std::string header, weights;
    for (const char* name : kNames) {
      header +=
          fmt::format(R"({}"{}": {{"dtype": "F32", "shape": [16], "data_offsets": [{}, {}]}})",
                      header.empty() ? "" : ", ", name, weights.size(), weights.size() + 64);
      weights += std::string(64, name == changed ? 'v' : 'w');
    }
    TempDir dir;
    dir.Write("config.json", "{}");
    dir.Write("model.safetensors", SafetensorsText("{" + header + "}", weights));
    const auto id = LayersId({dir.path()}, /*has_weights=*/true, /*first_layer=*/1, 1);
    REQUIRE(id.ok());
    return *id;
  };
  const std::string id = id_of_layer_1("");
  CHECK(id_of_layer_1("layers.0.experts.2.w") == id);
  CHECK(id_of_layer_1("layers.2.experts.0.w") == id);
  CHECK(id_of_layer_1("layers.1.w") != id);
  CHECK(id_of_layer_1("embed.weight") != id);
}

TEST_CASE("without weights there is no id, and the error names what is missing") {
  TempDir dir;
  dir.Write("config.json", "{}");
  CHECK(CheckpointId({dir.path()}, true).status().code() == absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace stagecoach::worker
