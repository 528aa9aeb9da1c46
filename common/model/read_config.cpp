#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "common/model/arch/arch.h"
#include "common/model/config_reader.h"
#include "common/model/gguf_config.h"
#include "common/model/model_spec.h"
#include "common/model/pooling.h"
#include "common/sampling_numbers.h"
#include "common/status.h"

namespace stagecoach {
namespace {

const arch::Architecture* FindArchitecture(ConfigReader& config, std::string* asked_for) {
  const std::vector<std::string> names = config.Strings("architectures");
  const std::string model_type = config.String("model_type", "");
  if (!names.empty()) {
    *asked_for = names.front();
  } else if (!model_type.empty()) {
    *asked_for = fmt::format("model_type \"{}\"", model_type);
  }
  for (const arch::Architecture& entry : arch::Architectures()) {
    if (names.empty() ? model_type == entry.model_type : names.front() == entry.name) return &entry;
  }
  return nullptr;
}

std::vector<std::string_view> SupportedNames() {
  std::vector<std::string_view> names;
  for (const arch::Architecture& entry : arch::Architectures()) names.push_back(entry.name);
  return names;
}

DType ReadStoredDType(ConfigReader& config) {
  const auto read = [](ConfigReader& section) {
    return section.String(section.Has("dtype") ? "dtype" : "torch_dtype", "");
  };
  std::string name = read(config);
  if (name.empty() && config.Has("text_config")) {
    ConfigReader text = config.Section("text_config");
    name = read(text);
  }
  if (name.empty() || name == "float32") return DType::kF32;
  if (name == "bfloat16") return DType::kBF16;
  if (name == "float16") return DType::kF16;
  config.Unsupported("dtype",
                     fmt::format("\"{}\" is not supported; supported are float32, bfloat16 "
                                 "and float16",
                                 name));
  return DType::kF32;
}

absl::Status MissingConfig(const std::string& model_dir) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_directory(model_dir, error)) {
    return absl::NotFoundError(fmt::format("{}: no such folder", model_dir));
  }
  if (fs::exists(fs::path(model_dir) / "adapter_config.json", error)) {
    return absl::NotFoundError(fmt::format(
        "{}: holds a LoRA adapter (adapter_config.json) but no config.json; give its base model "
        "with --merge-adapter {}, or merge it (peft: merge_and_unload) and serve the result",
        model_dir, model_dir));
  }
  return absl::NotFoundError(
      fmt::format("{}: holds no config.json; is this a Hugging Face checkpoint?", model_dir));
}

absl::StatusOr<ModelSpec> ReadConfig(const std::shared_ptr<const boost::json::object>& object,
                                     const std::string& path) {
  ConfigReader outline(object, path);
  std::string asked_for;
  const arch::Architecture* architecture = FindArchitecture(outline, &asked_for);
  SC_RETURN_IF_ERROR(outline.Finish());
  if (asked_for.empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: has neither \"architectures\" nor \"model_type\"; is it a model's config.json?",
        path));
  }
  if (architecture == nullptr) {
    return absl::UnimplementedError(fmt::format("{}: {} is not supported; supported are {}", path,
                                                asked_for, fmt::join(SupportedNames(), ", ")));
  }

  ConfigReader config(object, fmt::format("{} ({})", path, architecture->name));
  ModelSpec spec;
  spec.architecture = architecture->name;
  spec.stored_dtype = ReadStoredDType(config);
  spec.quantization = ReadQuantization(config);
  architecture->read(config, spec);
  SC_RETURN_IF_ERROR(config.Finish());
  if (spec.embed_size == 0) spec.embed_size = spec.hidden_size;
  return spec;
}

// What a file beside config.json says about quantization. Nothing if there is none.
absl::StatusOr<Quantization> QuantizationBeside(const std::string& model_dir) {
  const std::string path = (std::filesystem::path(model_dir) / "hf_quant_config.json").string();
  const auto object = ReadJsonObject(path);
  if (absl::IsNotFound(object.status())) return Quantization();
  SC_RETURN_IF_ERROR(object.status());
  ConfigReader file(*object, path);
  const Quantization quantization = ReadModelOptFile(file);
  SC_RETURN_IF_ERROR(file.Finish());
  return quantization;
}

}  // namespace

absl::StatusOr<ModelSpec> ReadModelSpec(const std::string& model_dir) {
  if (IsGgufModel(model_dir)) {
    SC_ASSIGN_OR_RETURN(const auto file, gguf::GgufFile::Open(model_dir));
    SC_ASSIGN_OR_RETURN(const auto config, GgufConfig(*file));
    SC_ASSIGN_OR_RETURN(ModelSpec spec, ReadConfig(config, model_dir));
    AdaptToGguf(*file, &spec);
    SC_ASSIGN_OR_RETURN(spec.pooling, GgufPooling(*file));
    return spec;
  }
  const std::string path = (std::filesystem::path(model_dir) / "config.json").string();
  auto object = ReadJsonObject(path);
  if (absl::IsNotFound(object.status())) return MissingConfig(model_dir);
  SC_RETURN_IF_ERROR(object.status());
  SC_ASSIGN_OR_RETURN(ModelSpec spec, ReadConfig(*object, path));
  if (spec.quantization.method == QuantMethod::kNone) {
    SC_ASSIGN_OR_RETURN(spec.quantization, QuantizationBeside(model_dir));
  }
  SC_ASSIGN_OR_RETURN(spec.pooling, ReadPooling(model_dir));
  if (spec.pooling && spec.embed_size != spec.hidden_size) {
    return absl::UnimplementedError(fmt::format(
        "{}: is an embedding model whose hidden states are projected, which is not offered",
        model_dir));
  }
  return spec;
}

absl::StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& model_dir) {
  namespace fs = std::filesystem;
  constexpr int32_t kMaxId = INT32_MAX;
  GenerationDefaults defaults;
  if (IsGgufModel(model_dir)) {
    SC_ASSIGN_OR_RETURN(const auto file, gguf::GgufFile::Open(model_dir));
    defaults.eos_ids = GgufEosIds(*file);
    return defaults;
  }
  const std::string path = (fs::path(model_dir) / "generation_config.json").string();
  auto object = ReadJsonObject(path);
  if (object.ok()) {
    ConfigReader config(*object, path);
    for (const SamplingNumber& number : kSamplingNumbers) {
      if (!number.in_checkpoint || !config.Has(number.name)) continue;
      defaults.sampling[number.name] =
          number.is_integer ? config.Int(number.name, static_cast<int64_t>(number.min), kMaxId)
                            : config.Number(number.name, number.min, number.max);
    }
    if (config.Has("max_new_tokens")) {
      defaults.max_new_tokens = config.Int("max_new_tokens", 1, kMaxId);
    }
    defaults.eos_ids = config.IntOrInts("eos_token_id", 0, kMaxId);
    SC_RETURN_IF_ERROR(config.Finish());
  } else if (!absl::IsNotFound(object.status())) {
    return object.status();
  }
  if (defaults.eos_ids.empty()) {
    const std::string config_path = (fs::path(model_dir) / "config.json").string();
    auto config_object = ReadJsonObject(config_path);
    if (absl::IsNotFound(config_object.status())) return MissingConfig(model_dir);
    SC_RETURN_IF_ERROR(config_object.status());
    ConfigReader config(*config_object, config_path);
    defaults.eos_ids = config.IntOrInts("eos_token_id", 0, kMaxId);
    if (defaults.eos_ids.empty() && config.Has("text_config")) {
      defaults.eos_ids = config.Section("text_config").IntOrInts("eos_token_id", 0, kMaxId);
    }
    SC_RETURN_IF_ERROR(config.Finish());
  }
  return defaults;
}

}  // namespace stagecoach
