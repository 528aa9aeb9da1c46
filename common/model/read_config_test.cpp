#include "common/model/testing/read_config.h"

namespace stagecoach {
namespace {

using Catch::Matchers::ContainsSubstring;

TEST_CASE("the error names what cannot run") {
  using absl::StatusCode;
  CHECK_THAT(ErrorOf("{}", StatusCode::kInvalidArgument), ContainsSubstring("\"architectures\""));
  CHECK_THAT(ErrorOf(R"({"architectures": ["QwertyForCausalLM"]})", StatusCode::kUnimplemented),
             ContainsSubstring("QwertyForCausalLM is not supported") &&
                 ContainsSubstring("LlamaForCausalLM"));
  CHECK_THAT(ErrorOf(R"({"model_type": "bert"})", StatusCode::kUnimplemented),
             ContainsSubstring("\"bert\""));
  CHECK_THAT(
      ErrorOf(
          Config("LlamaForCausalLM", R"("rope_scaling": {"rope_type": "dynamic", "factor": 4.0},)"),
          StatusCode::kUnimplemented),
      ContainsSubstring("\"dynamic\"") && ContainsSubstring("yarn, longrope and proportional"));
  CHECK_THAT(ErrorOf(R"({"architectures": ["GPT2LMHeadModel"], "vocab_size": 64, "n_embd": 32,
                         "n_head": 2, "n_layer": 2, "scale_attn_by_inverse_layer_idx": true})",
                     StatusCode::kUnimplemented),
             ContainsSubstring("scale_attn_by_inverse_layer_idx"));
  CHECK_THAT(
      ErrorOf(Config("LlamaForCausalLM", R"("quantization_config": {"quant_method": "hqq"},)"),
              StatusCode::kUnimplemented),
      ContainsSubstring("\"hqq\""));
  CHECK_THAT(
      ErrorOf(Config("LlamaForCausalLM", R"("quantization_config": {"load_in_4bit": true},)"),
              StatusCode::kUnimplemented),
      ContainsSubstring("bitsandbytes") && ContainsSubstring("dequantize()"));
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM",
                            R"("quantization_config": {"quant_method": "gptq", "bits": 3},)"),
                     StatusCode::kUnimplemented),
             ContainsSubstring("quantization_config.bits: 3 bits"));
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM",
                            R"("quantization_config": {"quant_method": "compressed-tensors",
                                "format": "marlin-24"},)"),
                     StatusCode::kUnimplemented),
             ContainsSubstring("marlin-24"));
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM",
                            R"("quantization_config": {"quant_method": "modelopt",
                                "quant_algo": "NVFP4_AWQ"},)"),
                     StatusCode::kUnimplemented),
             ContainsSubstring("\"NVFP4_AWQ\"") && ContainsSubstring("in bfloat16"));
  CHECK_THAT(
      ErrorOf(Config("LlamaForCausalLM", R"("hidden_act": "xielu",)"), StatusCode::kUnimplemented),
      ContainsSubstring("xielu"));
}

TEST_CASE("ModelOpt says what it quantized in config.json or in a file beside it") {
  const auto method = [](std::string_view more, std::string_view beside) {
    TempDir dir;
    dir.Write("config.json", Config("LlamaForCausalLM", more));
    dir.Write("hf_quant_config.json", beside);
    auto spec = ReadModelSpec(dir.path());
    INFO(spec.status());
    REQUIRE(spec.ok());
    return spec->quantization.method;
  };
  constexpr std::string_view kFile = R"({"producer": {"name": "modelopt"}, "quantization": {)";
  CHECK(method(R"("quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"},)",
               "{}") == QuantMethod::kModelOpt);
  CHECK(
      method("", std::string(kFile) + R"("quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"}})") ==
      QuantMethod::kModelOpt);
  CHECK(method("", std::string(kFile) + R"("quant_algo": null}})") == QuantMethod::kNone);

  TempDir dir;
  dir.Write("config.json", Config("LlamaForCausalLM", ""));
  dir.Write("hf_quant_config.json", std::string(kFile) + R"("quant_algo": "W4A8_AWQ"}})");
  CHECK_THAT(std::string(ReadModelSpec(dir.path()).status().message()),
             ContainsSubstring("hf_quant_config.json: quantization.quant_algo: \"W4A8_AWQ\""));
}

TEST_CASE("a broken config reports all its problems") {
  const std::string text = ErrorOf(
      R"({"architectures": ["LlamaForCausalLM"], "vocab_size": -1, "hidden_size": "128", "num_hidden_layers": 4000000000,
          "num_attention_heads": 4, "rope_scaling": {"rope_type": "llama3"}})",
      absl::StatusCode::kInvalidArgument);
  for (const char* part :
       {"vocab_size: -1", "hidden_size: \"128\"", "num_hidden_layers: 4000000000",
        "intermediate_size: missing", "rope_scaling.factor: missing"}) {
    CHECK_THAT(text, ContainsSubstring(part));
  }
  CHECK_THAT(ErrorOf(Config("LlamaForCausalLM", R"("num_key_value_heads": 3,)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("num_key_value_heads: 3 does not divide"));
  CHECK_THAT(ErrorOf(Config("Gemma2ForCausalLM", R"("layer_types": ["full_attention"],)"),
                     absl::StatusCode::kInvalidArgument),
             ContainsSubstring("layer_types: has 1 entries for 4 layers"));
}

TEST_CASE("folders without a config.json are refused") {
  TempDir dir;
  CHECK_THAT(std::string(ReadModelSpec(dir.File("none")).status().message()),
             ContainsSubstring("no such folder"));
  CHECK_THAT(std::string(ReadModelSpec(dir.path()).status().message()),
             ContainsSubstring("no config.json"));
  dir.Write("adapter_config.json", "{}");
  const absl::Status status = ReadModelSpec(dir.path()).status();
  CHECK(absl::IsNotFound(status));
  CHECK_THAT(std::string(status.message()), ContainsSubstring("LoRA"));
}

TEST_CASE("generation defaults") {
  TempDir dir;
  dir.Write("config.json", R"({"eos_token_id": 2})");
  auto defaults = ReadGenerationDefaults(dir.path());
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<int32_t>{2});
  CHECK(defaults->sampling.empty());

  dir.Write("generation_config.json",
            R"({"eos_token_id": [128001, 128009], "temperature": 0.6, "top_p": 0.9, "top_k": -1})");
  defaults = ReadGenerationDefaults(dir.path());
  REQUIRE(defaults.ok());
  CHECK(defaults->eos_ids == std::vector<int32_t>{128001, 128009});
  CHECK(defaults->sampling ==
        std::map<std::string, double>{{"temperature", 0.6}, {"top_p", 0.9}, {"top_k", -1}});

  dir.Write("generation_config.json", R"({"temperature": "hot", "top_p": 3})");
  const absl::Status status = ReadGenerationDefaults(dir.path()).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK_THAT(std::string(status.message()),
             ContainsSubstring("temperature") && ContainsSubstring("top_p"));
}

}  // namespace
}  // namespace stagecoach
