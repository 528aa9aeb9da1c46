#include "worker/loader/lora_adapter.h"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>

#include "common/temp_dir.h"
#include "worker/loader/check_checkpoint.h"
#include "worker/loader/test_checkpoint.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

// Tensors of the tiny Llama of testdata/make_lora.py.
std::vector<TensorRequest> Requests() {
  std::vector<TensorRequest> requests = {
      {.name = "model.embed_tokens.weight", .rows = 24, .cols = 8},
      {.name = "lm_head.weight", .rows = 24, .cols = 8},
      {.name = "model.norm.weight", .cols = 8, .is_vector = true}};
  for (int i = 0; i < 2; ++i) {
    const auto add = [&](const char* name, int64_t rows, int64_t cols) {
      requests.push_back({.name = fmt::format("model.layers.{}.{}.weight", i, name),
                          .rows = rows,
                          .cols = cols,
                          .is_vector = rows == 1});
    };
    add("input_layernorm", 1, 8);
    add("post_attention_layernorm", 1, 8);
    add("self_attn.q_proj", 8, 8);
    add("self_attn.k_proj", 4, 8);
    add("self_attn.v_proj", 4, 8);
    add("self_attn.o_proj", 8, 8);
    add("mlp.gate_proj", 12, 8);
    add("mlp.up_proj", 12, 8);
    add("mlp.down_proj", 8, 12);
  }
  return requests;
}

ModelSpec Spec() {
  ModelSpec spec;
  spec.layers.resize(2);
  return spec;
}

// Returns the largest difference of any weight, read in two pieces, from peft's result.
float Difference(const CheckpointOptions& options, const std::string& merged) {
  const std::vector<TensorRequest> requests = Requests();
  auto mine = OpenCheckpoint(options, requests);
  auto reference = OpenCheckpoint(TestData("lora/" + merged + "/merged.safetensors"), requests);
  INFO(mine.status() << reference.status());
  REQUIRE((mine.ok() && reference.ok()));
  float worst = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    const int64_t half = (requests[r].rows + 1) / 2;
    for (int64_t row = 0; row < requests[r].rows; row += half) {
      const int64_t n_rows = std::min(half, requests[r].rows - row);
      const RowsView a = (*mine)->Rows(r, row, n_rows), b = (*reference)->Rows(r, row, n_rows);
      REQUIRE((a.dtype == DType::kF32 && b.dtype == DType::kF32));
      for (int64_t i = 0; i < n_rows * requests[r].cols; ++i) {
        worst = std::max(worst, std::abs(static_cast<const float*>(a.data)[i] -
                                         static_cast<const float*>(b.data)[i]));
      }
    }
  }
  return worst;
}

TEST_CASE("an adapter next to its base gives the same weights as peft") {
  const std::string name = GENERATE("plain", "patterns");
  INFO(name);
  const std::string base = TestData("lora/base");
  CHECK(Difference({base, TestData("lora/" + name)}, name) < 1e-5f);
  CHECK(Difference(base, name) > 0.1f);  // otherwise the test would prove nothing
  const CheckpointVerdict verdict =
      CheckCheckpoint({base, TestData("lora/" + name)}, Spec(), Requests());
  CHECK(verdict.ok());
}

TEST_CASE("an adapter inside its checkpoint gives the same weights as peft") {
  TempDir config_only;
  std::filesystem::copy(TestData("lora/plain/adapter_config.json"), config_only.path());
  const std::string checkpoint = TestData("lora/leftovers.safetensors");
  CHECK(Difference({checkpoint, config_only.path()}, "plain") < 1e-5f);
  CHECK(CheckCheckpoint({checkpoint, config_only.path()}, Spec(), Requests()).ok());

  const auto error = [&](const CheckpointOptions& options) {
    return std::string(OpenCheckpoint(options, Requests()).status().message());
  };
  CHECK_THAT(error(checkpoint), ContainsSubstring("--merge-adapter"));
  CHECK_THAT(error({checkpoint, TestData("lora/base")}),
             ContainsSubstring("adapter_config.json: no such file"));
  CHECK_THAT(error({checkpoint, TestData("lora/plain")}),
             ContainsSubstring("it is unclear which adapter to merge"));
  CHECK_THAT(error({TestData("lora/base"), config_only.path()}),
             ContainsSubstring("holds neither adapter_model.safetensors"));
}

TEST_CASE("for an unsupported kind of adapter, the error names the kind") {
  struct Case {
    const char* config;
    const char* message;
  };
  const Case c = GENERATE(values<Case>({
      {R"({"peft_type": "IA3"})", "\"IA3\" is not supported"},
      {R"({"use_dora": true})", "use_dora"},
      {R"({"bias": "all"})", "bias: \"all\""},
      {R"({"modules_to_save": ["lm_head"]})", "modules_to_save"},
      {R"({"layer_replication": [[0, 1]]})", "layer_replication"},
      {R"({"init_lora_weights": "pissa"})", "\"pissa\" changes the base"},
      {R"({"alpha_pattern": {".*q_proj": 1}})", "regular expression"},
      {R"({"lora_alpha": "x"})", "lora_alpha"},
  }));
  TempDir dir;
  dir.Write("adapter_config.json", c.config);
  const absl::Status status =
      OpenCheckpoint({TestData("lora/base"), dir.path()}, Requests()).status();
  CHECK_THAT(std::string(status.message()), ContainsSubstring(c.message));
}

TEST_CASE("an adapter for another model is refused") {
  std::vector<TensorRequest> requests = Requests();
  const auto problems = [&] {
    return fmt::format(
        "{}", CheckCheckpoint({TestData("lora/base"), TestData("lora/plain")}, Spec(), requests)
                  .problems.back());
  };
  std::erase_if(requests, [](const TensorRequest& request) {
    return request.name.find("v_proj") != request.name.npos;
  });
  CHECK_THAT(problems(), ContainsSubstring("v_proj (2): is in the adapter, but the model has no"));
  requests = Requests();
  for (TensorRequest& request : requests) {
    if (request.name.find("q_proj") != request.name.npos) request.rows = 16;
  }
  CHECK_THAT(problems(), ContainsSubstring("for another model"));
}

TEST_CASE("for a tensor that is not part of a pair, the error names it") {
  TempDir dir;
  dir.Write("adapter_config.json", "{}");
  const char* const header = R"({
      "base_model.model.a.lora_A.weight": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
      "base_model.model.b.lora_magnitude_vector.weight":
          {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]}})";
  dir.Write("adapter_model.safetensors", SafetensorsText(header, std::string(16, '\0')));
  const std::string message(
      OpenCheckpoint({TestData("lora/base"), dir.path()}, Requests()).status().message());
  CHECK_THAT(message,
             ContainsSubstring("a: has lora_A but no lora_B") &&
                 ContainsSubstring("lora_magnitude_vector.weight: is not a weight of a plain"));
}

}  // namespace
}  // namespace stagecoach::worker
