// For tests of configurations: a config.json of a few keys, and the published ones of docs/shapes.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/model/model_spec.h"
#include "common/temp_dir.h"

namespace stagecoach {

inline absl::StatusOr<ModelSpec> Read(std::string_view config) {
  TempDir dir;
  dir.Write("config.json", config);
  return ReadModelSpec(dir.path());
}

inline ModelSpec MustRead(std::string_view config) {
  auto spec = Read(config);
  INFO(spec.status());
  REQUIRE(spec.ok());
  return *std::move(spec);
}

// Returns a config of `architecture` with usual sizes, plus the keys in `more` ("\"key\": value,").
inline std::string Config(std::string_view architecture, std::string_view more) {
  return std::string(R"({"architectures": [")") + std::string(architecture) + R"("], )" +
         std::string(more) +
         R"("vocab_size": 512, "hidden_size": 128, "intermediate_size": 160, "num_hidden_layers": 4,
            "num_attention_heads": 4, "max_position_embeddings": 512})";
}

inline std::string ErrorOf(std::string_view config, absl::StatusCode code) {
  const absl::Status status = Read(config).status();
  CHECK(status.code() == code);
  return std::string(status.message());
}

// A folder of docs/shapes.
inline absl::StatusOr<ModelSpec> ReadShape(const std::string& name) {
  return ReadModelSpec(STAGECOACH_SHAPES "/" + name);
}

}  // namespace stagecoach
