#include "common/model/quantization.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace stagecoach {
namespace {

constexpr std::string_view kSupported =
    "supported are fp8, gptq, awq, compressed-tensors, mxfp4 and modelopt";

// Formats of compressed-tensors whose tensors the loader can read.
constexpr std::array<std::string_view, 7> kFormats = {
    "pack-quantized",       "int-quantized",        "float-quantized", "naive-quantized",
    "mxfp4-pack-quantized", "nvfp4-pack-quantized", "mixed-precision"};

// What ModelOpt calls formats whose tensors the loader can read. Of MIXED_PRECISION, layers have
// names of their own, which the tensors show.
constexpr std::array<std::string_view, 4> kModelOptFormats = {
    "NVFP4", "FP8", "FP8_PER_CHANNEL_PER_TOKEN", "MIXED_PRECISION"};

void CheckBits(ConfigReader& section, std::string_view key, bool with_8) {
  const int32_t bits = section.Int(key, 1, 32);
  if (bits == 4 || (with_8 && bits == 8)) return;
  section.Unsupported(key, fmt::format("{} bits are not supported; supported are {}", bits,
                                       with_8 ? "4 and 8" : "4"));
}

int32_t GroupSize(ConfigReader& section, std::string_view key) {
  constexpr int32_t kMost = 1 << 24;
  const int32_t size = section.Int(key, -1, kMost, 128);
  return std::max(size, 0);
}

Quantization ReadFp8(ConfigReader& section) {
  const std::string fmt = section.String("fmt", "e4m3");
  if (fmt != "e4m3" && fmt != "float8_e4m3fn") {
    section.Unsupported("fmt", fmt::format("\"{}\" is not supported; supported is e4m3", fmt));
  }
  constexpr int32_t kMostOfBlock = 1 << 24;
  const std::vector<int32_t> block = section.IntOrInts("weight_block_size", 1, kMostOfBlock);
  return {.method = QuantMethod::kFp8, .group_size = block.empty() ? 0 : block.back()};
}

Quantization ReadGptq(ConfigReader& section) {
  const std::string format = section.String("checkpoint_format", "gptq");
  if (format != "gptq" && format != "gptq_v2") {
    section.Unsupported(
        "checkpoint_format",
        fmt::format("\"{}\" is not supported; supported are gptq and gptq_v2", format));
  }
  const Quantization quantization{.method = QuantMethod::kGptq,
                                  .group_size = GroupSize(section, "group_size"),
                                  .zeros_are_one_less = format == "gptq"};
  CheckBits(section, "bits", /*with_8=*/true);
  return quantization;
}

Quantization ReadAwq(ConfigReader& section) {
  std::string version = section.String("version", "gemm");
  std::transform(version.begin(), version.end(), version.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (version != "gemm") {
    section.Unsupported("version",
                        fmt::format("\"{}\" is not supported; supported is gemm", version));
  }
  const Quantization quantization{
      .method = QuantMethod::kAwq,
      .group_size =
          GroupSize(section, section.Has("q_group_size") ? "q_group_size" : "group_size")};
  CheckBits(section, section.Has("w_bit") ? "w_bit" : "bits", /*with_8=*/false);
  return quantization;
}

Quantization ReadCompressedTensors(ConfigReader& section) {
  const std::string format = section.String("format", "");
  if (std::find(kFormats.begin(), kFormats.end(), format) == kFormats.end()) {
    section.Unsupported("format", fmt::format("\"{}\" is not supported; supported are {}", format,
                                              fmt::join(kFormats, ", ")));
  }
  if (section.Has("sparsity_config")) {
    const std::string sparse = section.Section("sparsity_config").String("format", "dense");
    if (sparse != "dense") {
      section.Unsupported(
          "sparsity_config",
          fmt::format("compressed sparse weights (\"{}\") are not supported", sparse));
    }
  }
  if (section.Has("transform_config") && section.Section("transform_config").Has("config_groups")) {
    section.Unsupported("transform_config", "rotations of activations are not supported");
  }
  return {.method = QuantMethod::kCompressedTensors};
}

Quantization ReadModelOpt(ConfigReader& section) {
  const std::string format = section.String("quant_algo", "");
  if (std::find(kModelOptFormats.begin(), kModelOptFormats.end(), format) ==
      kModelOptFormats.end()) {
    section.Unsupported("quant_algo",
                        fmt::format("\"{}\" is not supported; supported are {}; or use the "
                                    "checkpoint in bfloat16, float16 or float32",
                                    format, fmt::join(kModelOptFormats, ", ")));
  }
  return {.method = QuantMethod::kModelOpt};
}

}  // namespace

Quantization ReadQuantization(ConfigReader& config) {
  const char* key = "quantization_config";
  if (!config.Has(key) && config.Has("compression_config")) key = "compression_config";
  if (!config.Has(key)) return {};
  ConfigReader section = config.Section(key);
  const std::string method = section.String(
      "quant_method", key == std::string_view("compression_config") ? "compressed-tensors" : "");
  if (method == "fp8" || method == "fbgemm_fp8") return ReadFp8(section);
  if (method == "gptq") return ReadGptq(section);
  if (method == "awq") return ReadAwq(section);
  if (method == "mxfp4") return {.method = QuantMethod::kMxFp4};
  if (method == "compressed-tensors") return ReadCompressedTensors(section);
  if (method == "modelopt" || method == "modelopt_fp4") return ReadModelOpt(section);
  const std::string name =
      method == "bitsandbytes" || section.Has("load_in_4bit") ? "bitsandbytes" : method;
  if (name == "bitsandbytes") {
    config.Unsupported(
        key,
        "weights quantized by \"bitsandbytes\" are not supported; take the model's original "
        "checkpoint in bfloat16, or write one (transformers: model.dequantize(), then "
        "save_pretrained), or take one in another format: supported are fp8, gptq, awq, "
        "compressed-tensors, mxfp4, modelopt and GGUF");
  } else {
    config.Unsupported(key, fmt::format("weights quantized by \"{}\" are not supported; {}; or use "
                                        "the checkpoint in bfloat16, float16 or float32",
                                        name.empty() ? "unnamed" : name, kSupported));
  }
  return {};
}

Quantization ReadModelOptFile(ConfigReader& file) {
  ConfigReader section = file.Section("quantization");
  // Without a format, only the KV cache was to be quantized.
  return section.Has("quant_algo") ? ReadModelOpt(section) : Quantization();
}

}  // namespace stagecoach
