#include "common/model/gguf_config.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>

#include "common/gguf/test_gguf.h"
#include "common/temp_dir.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;
using gguf::TensorType;
using gguf::TestGguf;

TestGguf Sizes(const std::string& architecture) {
  TestGguf file;
  file.String("general.architecture", architecture);
  file.Uint(architecture + ".block_count", 12);
  file.Uint(architecture + ".embedding_length", 64);
  file.Uint(architecture + ".feed_forward_length", 96);
  file.Uint(architecture + ".attention.head_count", 4);
  file.Uint(architecture + ".attention.head_count_kv", 2);
  file.Uint(architecture + ".context_length", 4096);
  file.Float(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  file.Tensor("token_embd.weight", {64, 10}, TensorType::kQ8_0, std::string(64 / 32 * 34 * 10, 0));
  return file;
}

absl::StatusOr<ModelSpec> Read(const TestGguf& file) {
  TempDir dir;
  dir.Write("m.gguf", file.Bytes());
  return ReadModelSpec(dir.File("m.gguf"));
}

std::string Error(const TestGguf& file) {
  const absl::Status status = Read(file).status();
  CHECK_FALSE(status.ok());
  CHECK_THAT(std::string(status.message()), ContainsSubstring("m.gguf"));
  return std::string(status.message());
}

TEST_CASE("pooling_type makes an embedding model") {
  TestGguf plain = Sizes("qwen3");
  plain.Uint("qwen3.pooling_type", 0);
  CHECK_FALSE(Read(plain)->pooling.has_value());
  for (const auto& [type, is_mean] : {std::pair{1u, true}, {3u, false}}) {
    TestGguf file = Sizes("qwen3");
    file.Uint("qwen3.pooling_type", type);
    const auto spec = Read(file);
    INFO(spec.status());
    REQUIRE(spec.ok());
    REQUIRE(spec->pooling.has_value());
    CHECK(spec->pooling->mean == is_mean);
    CHECK(spec->pooling->normalize);
  }
  TestGguf cls = Sizes("qwen3");
  cls.Uint("qwen3.pooling_type", 2);
  CHECK_THAT(Error(cls), ContainsSubstring("qwen3.pooling_type"));
}

TEST_CASE("llama: the config is read") {
  TestGguf file = Sizes("llama");
  file.Float("llama.rope.freq_base", 5e5f);
  file.Tensor("output.weight", {64, 10}, TensorType::kF16, std::string(2 * 64 * 10, 0));
  file.Tensor("blk.0.attn_q.bias", {64}, TensorType::kF32, std::string(4 * 64, 0));
  const auto spec = Read(file);
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "LlamaForCausalLM");
  CHECK(spec->n_layers() == 12);
  CHECK(spec->vocab_size == 10);
  CHECK(spec->hidden_size == 64);
  CHECK(spec->intermediate_size == 96);
  CHECK(spec->n_heads == 4);
  CHECK(spec->n_kv_heads == 2);
  CHECK(spec->head_dim == 16);
  CHECK(spec->max_positions == 4096);
  CHECK_THAT(spec->norm_eps, WithinRel(1e-6, 1e-6));
  CHECK(spec->ropes.at(0).theta == 5e5);
  CHECK_FALSE(spec->tied_embedding);
  CHECK(spec->qkv_bias);
  CHECK_FALSE(spec->o_bias);
  CHECK(spec->stored_dtype == DType::kBF16);
  CHECK(spec->names.q == "blk.{}.attn_q");
  CHECK(spec->names.embed == "token_embd");
  CHECK(spec->names.q_norm.empty());
}

TEST_CASE("gemma3: norms contain 1 + w, and each layer's window is known") {
  TestGguf file = Sizes("gemma3");
  file.Uint("gemma3.attention.key_length", 32);
  file.Uint("gemma3.attention.value_length", 32);
  file.Uint("gemma3.attention.sliding_window", 512);
  file.Float("gemma3.rope.freq_base", 1e6f);
  const auto spec = Read(file);
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "Gemma3ForCausalLM");
  CHECK(spec->norm == NormKind::kRms);
  CHECK(spec->tied_embedding);
  CHECK(spec->head_dim == 32);
  CHECK_THAT(spec->attn_scale, WithinRel(1.0f / std::sqrt(32.0f), 1e-6f));
  REQUIRE(spec->kv_groups.size() == 2);
  CHECK(spec->kv_groups[0].window == 512);
  CHECK(spec->layers[5].kv_group == 1);
  CHECK(spec->names.post_mlp_norm == "blk.{}.post_ffw_norm");
  CHECK(spec->names.k_norm == "blk.{}.attn_k_norm");
}

TEST_CASE("qwen3moe: experts are read, and their tensors hold all of them") {
  TestGguf file = Sizes("qwen3moe");
  file.Uint("qwen3moe.expert_count", 8);
  file.Uint("qwen3moe.expert_used_count", 2);
  file.Uint("qwen3moe.expert_feed_forward_length", 32);
  const auto spec = Read(file);
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "Qwen3MoeForCausalLM");
  CHECK(spec->experts.n_experts == 8);
  CHECK(spec->experts.n_used == 2);
  CHECK(spec->experts.intermediate_size == 32);
  CHECK(spec->experts.weights_over_used);
  CHECK(spec->layers[11].has_experts);
  CHECK(spec->names.q_norm == "blk.{}.attn_q_norm");
  CHECK(spec->names.router == "blk.{}.ffn_gate_inp");
  CHECK(spec->names.expert_gate == "blk.{}.ffn_gate_exps");
  CHECK(spec->names.expert_up == "blk.{}.ffn_up_exps");
  CHECK(spec->names.expert_down == "blk.{}.ffn_down_exps");
  CHECK_THAT(Error(Sizes("qwen3moe")), ContainsSubstring("qwen3moe.expert_used_count"));
}

TEST_CASE("llama with experts is Mixtral") {
  TestGguf file = Sizes("llama");
  file.Uint("llama.expert_count", 8);
  file.Uint("llama.expert_used_count", 2);
  const auto spec = Read(file);
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->architecture == "MixtralForCausalLM");
  CHECK(spec->experts.n_experts == 8);
  CHECK(spec->experts.n_used == 2);
  CHECK(spec->experts.intermediate_size == 96);
}

TEST_CASE("the frequency table of llama 3.1 is recognized, others are refused") {
  const auto with_table = [](auto divisor) {
    TestGguf file = Sizes("llama");
    file.Float("llama.rope.freq_base", 5e5f);
    std::string data;
    for (int i = 0; i < 8; ++i) {
      const double wavelength = 2 * 3.14159265358979 * std::pow(5e5, i / 8.0);
      data += TestGguf::Raw(static_cast<float>(divisor(wavelength)));
    }
    file.Tensor("rope_freqs.weight", {8}, TensorType::kF32, data);
    return file;
  };
  const auto llama3 = [](double wavelength) {
    if (wavelength < 2048) return 1.0;
    if (wavelength > 8192) return 8.0;
    const double smooth = (8192 / wavelength - 1) / 3;
    return 1 / ((1 - smooth) / 8 + smooth);
  };
  const auto spec = Read(with_table(llama3));
  INFO(spec.status());
  REQUIRE(spec.ok());
  CHECK(spec->ropes[0].scaling == RopeScaling::kLlama3);
  CHECK(spec->ropes[0].factor == 8);
  CHECK(spec->ropes[0].original_max_positions == 8192);
  CHECK_THAT(Error(with_table([](double wavelength) { return wavelength > 100 ? 3.0 : 1.0; })),
             ContainsSubstring("rope_freqs.weight"));
}

TEST_CASE("the error names what is not supported") {
  TestGguf missing;
  missing.String("general.architecture", "llama");
  CHECK_THAT(Error(missing), ContainsSubstring("llama.block_count"));
  TestGguf other;
  other.String("general.architecture", "mamba");
  CHECK_THAT(Error(other), ContainsSubstring("\"mamba\"") && ContainsSubstring("gemma3"));
  TestGguf experts = Sizes("qwen2");
  experts.Uint("qwen2.expert_count", 8);
  experts.Uint("qwen2.expert_used_count", 2);
  CHECK_THAT(Error(experts), ContainsSubstring("qwen2.expert_count"));
  TestGguf rope = Sizes("qwen3");
  rope.String("qwen3.rope.scaling.type", "yarn");
  CHECK_THAT(Error(rope), ContainsSubstring("yarn"));
  TestGguf split = Sizes("llama");
  split.Value("split.count", gguf::ValueType::kUint16, TestGguf::Raw<uint16_t>(3));
  CHECK_THAT(Error(split), ContainsSubstring("split over 3 files"));
}

TEST_CASE("end-of-text and end-of-turn tokens are found") {
  TestGguf file = Sizes("llama");
  file.Uint("tokenizer.ggml.eos_token_id", 1);
  file.Array("tokenizer.ggml.tokens", gguf::ValueType::kString, 3,
             TestGguf::Text("a") + TestGguf::Text("<eos>") + TestGguf::Text("<end_of_turn>"));
  file.Array("tokenizer.ggml.token_type", gguf::ValueType::kInt32, 3,
             TestGguf::Raw<int32_t>(1) + TestGguf::Raw<int32_t>(3) + TestGguf::Raw<int32_t>(3));
  TempDir dir;
  dir.Write("m.gguf", file.Bytes());
  CHECK(ReadGenerationDefaults(dir.File("m.gguf"))->eos_ids == std::vector<int32_t>{1, 2});
}

TEST_CASE("a folder with one .gguf file stands for that file") {
  TempDir dir;
  dir.Write("m.gguf", "GGUF");
  dir.Write("mmproj-m.gguf", "GGUF");
  dir.Write("README.md", "");
  CHECK(*ResolveModelDir(dir.path()) == dir.File("m.gguf"));
  CHECK(*ResolveModelDir(dir.File("m.gguf")) == dir.File("m.gguf"));
  dir.Write("n.gguf", "GGUF");
  CHECK_THAT(std::string(ResolveModelDir(dir.path()).status().message()),
             ContainsSubstring("give one of them: m.gguf, n.gguf"));
  dir.Write("a-00001-of-00002.gguf", "GGUF");
  CHECK_THAT(std::string(ResolveModelDir(dir.path()).status().message()),
             ContainsSubstring("--merge"));
  dir.Write("model.safetensors", "");
  CHECK(*ResolveModelDir(dir.path()) == dir.path());
}

}  // namespace
}  // namespace stagecoach
