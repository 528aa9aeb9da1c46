#include "worker/loader/checkpoint_files.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <filesystem>

#include "common/model/config_reader.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";

// Published files differ in what stands before the layers: a base model saved without its head has
// no "model.", a multimodal one puts its own part before or behind it.
std::vector<std::string> Spellings(std::string_view name) {
  constexpr std::string_view kModel = "model.", kTransformer = "transformer.";
  if (name.substr(0, kTransformer.size()) == kTransformer) {  // GPT-2
    return {std::string(name), std::string(name.substr(kTransformer.size()))};
  }
  if (name.substr(0, kModel.size()) != kModel) {
    return {std::string(name), fmt::format("language_model.{}", name)};
  }
  const std::string_view rest = name.substr(kModel.size());
  return {std::string(name), std::string(rest), fmt::format("language_model.model.{}", rest),
          fmt::format("model.language_model.{}", rest)};
}

absl::Status NoSafetensors(const std::string& model_dir) {
  std::error_code error;
  std::string others;
  bool has_torch = false;
  for (const auto& entry : fs::directory_iterator(model_dir, error)) {
    const std::string extension = entry.path().extension().string();
    const bool is_torch = extension == ".bin" || extension == ".pt" || extension == ".pth";
    if (!is_torch && extension != ".safetensors" && extension != ".gguf") continue;
    has_torch |= is_torch;
    others += fmt::format("{}{}", others.empty() ? "" : ", ", entry.path().filename().string());
    if (others.size() > 200) break;
  }
  const std::string found = others.empty() ? "and no other weights" : "but " + others;
  const char* const advice =
      has_torch ? "; convert the pickle files: load them with transformers and call "
                  "save_pretrained(DIR, safe_serialization=True)"
                : "";
  return absl::NotFoundError(fmt::format("{}: holds neither {} nor {}, {}{}", model_dir,
                                         kSingleFile, kIndexFile, found, advice));
}

}  // namespace

absl::StatusOr<CheckpointFiles> CheckpointFiles::Open(const std::string& model_dir) {
  CheckpointFiles files;
  files.model_dir_ = model_dir;
  const fs::path dir(model_dir);
  std::error_code error;
  if (fs::exists(dir / kSingleFile, error)) {
    files.source_ = (dir / kSingleFile).string();
    auto file = SafetensorsFile::Open(files.source_);
    SC_RETURN_IF_ERROR(file.status());
    for (const auto& [name, entry] : (*file)->entries()) files.file_of_[name] = kSingleFile;
    files.opened_.emplace(kSingleFile, *std::move(file));
    return files;
  }
  if (!fs::exists(dir / kIndexFile, error)) return NoSafetensors(model_dir);
  files.source_ = (dir / kIndexFile).string();
  SC_RETURN_IF_ERROR(files.ReadIndex(files.source_));
  return files;
}

absl::Status CheckpointFiles::ReadIndex(const std::string& path) {
  SC_ASSIGN_OR_RETURN(const auto index, ReadJsonObject(path));
  const boost::json::value* map = index->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(fmt::format("{}: has no weight_map", path));
  }
  for (const auto& [key, value] : map->get_object()) {
    const std::string name(key.data(), key.size());
    const boost::json::string* text = value.if_string();
    const std::string file = text == nullptr ? "" : std::string(text->data(), text->size());
    if (file.empty() || file == ".." || file.find('/') != file.npos) {
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor {} is said to be in \"{}\", which is no file of this folder",
                      path, name, file));
    }
    file_of_[name] = file;
  }
  return absl::OkStatus();
}

CheckpointFiles::Found CheckpointFiles::Find(std::string_view name) {
  Found found;
  for (const std::string& spelling : Spellings(name)) {
    const auto place = file_of_.find(spelling);
    if (place == file_of_.end()) continue;
    found.name = spelling;
    auto opened = opened_.find(place->second);
    if (opened == opened_.end()) {
      const std::string path = (fs::path(model_dir_) / place->second).string();
      opened = opened_.emplace(place->second, SafetensorsFile::Open(path)).first;
    }
    found.file_error = opened->second.status();
    if (!opened->second.ok()) return found;
    found.file = *opened->second;
    const auto entry = found.file->entries().find(spelling);
    if (entry != found.file->entries().end()) found.entry = &entry->second;
    return found;
  }
  return found;
}

std::vector<std::string> CheckpointFiles::LoraNames() const {
  std::vector<std::string> names;
  for (const auto& [name, file] : file_of_) {
    if (name.find(".lora_") != name.npos || name.find(".base_layer.") != name.npos) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace stagecoach::worker
