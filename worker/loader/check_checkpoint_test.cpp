#include "worker/loader/check_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "common/temp_dir.h"
#include "worker/loader/test_checkpoint.h"

namespace stagecoach::worker {
namespace {

using Catch::Matchers::ContainsSubstring;

// A model of two layers, each with one matrix and one norm.
ModelSpec Spec() {
  ModelSpec spec;
  spec.layers.resize(2);
  spec.tied_embedding = true;
  spec.names.embed = "model.embed_tokens";
  spec.names.lm_head = "lm_head";
  return spec;
}

std::vector<TensorRequest> Requests() {
  std::vector<TensorRequest> requests = {
      {.name = "model.embed_tokens.weight", .rows = 4, .cols = 2},
      {.name = "model.norm.weight", .cols = 2, .is_vector = true}};
  for (int i = 0; i < 2; ++i) {
    requests.push_back(
        {.name = fmt::format("model.layers.{}.self_attn.q_proj.weight", i), .rows = 2, .cols = 2});
  }
  return requests;
}

struct Tensor {
  std::string name;
  std::vector<int> shape;
  float value = 1;
};

std::vector<Tensor> Sound() {
  return {{"model.embed_tokens.weight", {4, 2}},
          {"model.norm.weight", {2}},
          {"model.layers.0.self_attn.q_proj.weight", {2, 2}},
          {"model.layers.1.self_attn.q_proj.weight", {2, 2}}};
}

CheckpointVerdict Check(const std::vector<Tensor>& tensors, const ModelSpec& spec = Spec()) {
  std::string header, data;
  for (const Tensor& tensor : tensors) {
    const size_t begin = data.size();
    int n = 1;
    for (const int extent : tensor.shape) n *= extent;
    for (int i = 0; i < n; ++i) {
      data.append(reinterpret_cast<const char*>(&tensor.value), sizeof(float));
    }
    header += fmt::format(R"({}"{}": {{"dtype": "F32", "shape": [{}], "data_offsets": [{}, {}]}})",
                          header.empty() ? "" : ", ", tensor.name, fmt::join(tensor.shape, ", "),
                          begin, data.size());
  }
  TempDir dir;
  dir.Write("model.safetensors", SafetensorsText("{" + header + "}", data));
  return CheckCheckpoint(dir.path(), spec, Requests());
}

std::string Problems(std::vector<Tensor> tensors) {
  return fmt::format("{}", fmt::join(Check(tensors).problems, "\n"));
}

TEST_CASE("a valid checkpoint may contain extra tensors") {
  std::vector<Tensor> tensors = Sound();
  CHECK(Check(tensors).ok());
  CHECK(Check(tensors).notes.empty());
  CHECK(Check(tensors).n_parameters == 8 + 2 + 2 * 4);
  tensors.push_back({"lm_head.weight", {4, 2}});
  tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {1}});
  tensors.push_back({"vision_tower.layers.7.norm.weight", {1}});
  tensors.push_back({"vision_tower.layers.7.norm.bias", {1}});
  CheckpointVerdict verdict = Check(tensors);
  INFO(fmt::format("{}", fmt::join(verdict.problems, "\n")));
  CHECK(verdict.ok());
  CHECK(verdict.notes.size() == 3);
  tensors[4].value = 2;
  verdict = Check(tensors);
  CHECK(verdict.ok());
  CHECK_THAT(verdict.notes.back(), ContainsSubstring("lm_head.weight differs"));
}

TEST_CASE("scales of a quantized KV cache are ignored, and one sentence says so") {
  std::vector<Tensor> tensors = Sound();
  for (const char* const name :
       {"self_attn.k_scale", "self_attn.v_scale", "self_attn.attn.k_scale",
        "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale", "self_attn.kv_scale",
        "self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"}) {
    tensors.push_back({fmt::format("model.layers.0.{}", name), {1}});
    tensors.push_back({fmt::format("model.layers.1.{}", name), {1}});
  }
  const CheckpointVerdict verdict = Check(tensors);
  CHECK(verdict.ok());
  REQUIRE(verdict.notes.size() == 8);
  for (const std::string& note : verdict.notes) {
    CHECK_THAT(note, ContainsSubstring("--kv-dtype fp8 measures its own"));
  }
}

TEST_CASE("tensors that would give wrong results are a problem") {
  std::vector<Tensor> tensors = Sound();
  for (int i = 2; i < 12; ++i) {
    tensors.push_back({fmt::format("model.layers.{}.self_attn.q_proj.weight", i), {2, 2}});
  }
  tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {2}});
  tensors.push_back({"model.layers.1.self_attn.q_proj.bias", {2}});
  tensors.push_back({"model.layers.1.self_attn.q_norm.weight", {2}});
  const std::string problems = Problems(tensors);
  CHECK_THAT(problems, ContainsSubstring("model.layers.{2-11}.self_attn.q_proj.weight (10): "
                                         "belongs to a layer that config.json does not have"));
  CHECK_THAT(problems,
             ContainsSubstring("model.layers.{0-1}.self_attn.q_proj.bias (2): is a bias"));
  CHECK_THAT(problems, ContainsSubstring("model.layers.1.self_attn.q_norm.weight: is a norm"));
}

TEST_CASE("keys of a layer that uses another layer's are ignored") {
  ModelSpec spec = Spec();
  spec.names.k = "model.layers.{}.self_attn.k_proj";
  spec.names.k_norm = "model.layers.{}.self_attn.k_norm";
  std::vector<Tensor> tensors = Sound();
  tensors.push_back({"model.layers.1.self_attn.k_proj.weight", {2, 2}});
  tensors.push_back({"model.layers.1.self_attn.k_norm.weight", {2}});
  CHECK_FALSE(Check(tensors, spec).ok());
  spec.layers[1].kv_source = 0;
  const CheckpointVerdict verdict = Check(tensors, spec);
  CHECK(verdict.ok());
  REQUIRE(verdict.notes.size() == 2);
  CHECK_THAT(verdict.notes[0], ContainsSubstring("keys and values of another layer"));
}

TEST_CASE("if the embedding has another size, the error names the ids outside") {
  std::vector<Tensor> tensors = Sound();
  tensors[0].shape = {3, 2};
  CHECK_THAT(Problems(tensors), ContainsSubstring("token ids 3 to 3 have no row") &&
                                    ContainsSubstring("set vocab_size to 3"));
  tensors[0].shape = {6, 2};
  CHECK_THAT(Problems(tensors),
             ContainsSubstring("rows 4 to 5 are beyond vocab_size; set vocab_size"));
}

TEST_CASE("an unmerged adapter and missing tensors are reported together") {
  const std::string problems = Problems(
      {{"base_model.model.model.embed_tokens.weight", {4, 2}},
       {"base_model.model.model.layers.0.self_attn.q_proj.base_layer.weight", {2, 2}},
       {"base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", {1, 2}},
       {"base_model.model.model.layers.0.self_attn.q_proj.lora_B.default.weight", {2, 1}}});
  CHECK_THAT(problems, ContainsSubstring("model.norm.weight: missing"));
  CHECK_THAT(problems, ContainsSubstring("layers.1.self_attn.q_proj.weight: missing"));
  CHECK_THAT(problems, ContainsSubstring("4 tensors of an unmerged LoRA adapter") &&
                           ContainsSubstring("merge_and_unload") &&
                           ContainsSubstring("--merge-adapter"));
}

TEST_CASE("tensor names alone reveal extra layers, without opening a shard") {
  TempDir dir;
  const auto check = [&](const std::string& more) {
    dir.Write("model.safetensors.index.json",
              R"({"weight_map": {"model.embed_tokens.weight": "1.safetensors",
                  "model.layers.0.self_attn.q_proj.weight": "1.safetensors")" +
                  more + "}}");
    return CheckNames(dir.path(), Spec(), Requests());
  };
  CHECK(check("").ok());
  const absl::Status status =
      check(R"(, "model.layers.7.self_attn.q_proj.weight": "2.safetensors")");
  CHECK_THAT(std::string(status.message()), ContainsSubstring("layers.7"));
}

TEST_CASE("a missing checkpoint is the only problem") {
  TempDir dir;
  const CheckpointVerdict verdict = CheckCheckpoint(dir.path(), Spec(), Requests());
  REQUIRE(verdict.problems.size() == 1);
  CHECK_THAT(verdict.problems[0], ContainsSubstring("holds no weights"));
}

}  // namespace
}  // namespace stagecoach::worker
