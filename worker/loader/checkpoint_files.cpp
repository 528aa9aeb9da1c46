#include "worker/loader/checkpoint_files.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>
#include <filesystem>

#include "common/model/config_reader.h"
#include "common/status.h"
#include "worker/loader/tensor_names.h"

namespace stagecoach::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::array kSingleFiles = {"model.safetensors", "pytorch_model.bin"};
constexpr std::array kIndexFiles = {"model.safetensors.index.json", "pytorch_model.bin.index.json"};

absl::Status NoWeights(const std::string& model_dir) {
  std::error_code error;
  std::string others;
  for (const auto& entry : fs::directory_iterator(model_dir, error)) {
    const std::string extension = entry.path().extension().string();
    if (extension != ".safetensors" && extension != ".gguf" && extension != ".bin" &&
        extension != ".pt" && extension != ".pth") {
      continue;
    }
    others += fmt::format("{}{}", others.empty() ? "" : ", ", entry.path().filename().string());
    if (others.size() > 200) break;
  }
  return absl::NotFoundError(fmt::format(
      "{}: holds no weights (none of {}, {}, {}, {}), {}; download the checkpoint again, or give "
      "a .gguf file itself as the model",
      model_dir, kSingleFiles[0], kIndexFiles[0], kSingleFiles[1], kIndexFiles[1],
      others.empty() ? "and no other weights" : "but " + others));
}

}  // namespace

absl::StatusOr<CheckpointFiles> CheckpointFiles::Open(const std::string& model_path) {
  CheckpointFiles files;
  std::error_code error;
  if (fs::is_regular_file(model_path, error)) {
    SC_RETURN_IF_ERROR(files.OpenOnly(model_path));
    return files;
  }
  for (size_t i = 0; i < kSingleFiles.size(); ++i) {
    const fs::path single = fs::path(model_path) / kSingleFiles[i];
    const fs::path index = fs::path(model_path) / kIndexFiles[i];
    if (fs::exists(single, error)) {
      SC_RETURN_IF_ERROR(files.OpenOnly(single.string()));
      return files;
    }
    if (fs::exists(index, error)) {
      SC_RETURN_IF_ERROR(files.ReadIndex(index.string()));
      return files;
    }
  }
  return NoWeights(model_path);
}

absl::Status CheckpointFiles::OpenOnly(const std::string& path) {
  source_ = path;
  dir_ = fs::path(path).parent_path().string();
  const std::string name = fs::path(path).filename().string();
  SC_ASSIGN_OR_RETURN(const auto file, OpenTensorFile(path));
  for (const auto& [tensor, entry] : file->tensors) {
    file_of_[tensor] = name;
    if (IsLoraName(tensor)) lora_names_.push_back(tensor);
  }
  opened_.emplace(name, file);
  return absl::OkStatus();
}

absl::Status CheckpointFiles::ReadIndex(const std::string& path) {
  source_ = path;
  dir_ = fs::path(path).parent_path().string();
  SC_ASSIGN_OR_RETURN(const auto index, ReadJsonObject(path));
  const boost::json::value* map = index->if_contains("weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(fmt::format("{}: has no weight_map", path));
  }
  for (const auto& [key, value] : map->get_object()) {
    const std::string name(key.data(), key.size());
    const boost::json::string* text = value.if_string();
    const std::string file = text == nullptr ? "" : std::string(text->data(), text->size());
    if (file.empty() || file == "." || file == ".." || file.find('/') != file.npos ||
        file.find('\0') != file.npos) {
      return absl::InvalidArgumentError(
          fmt::format("{}: tensor {} is listed in \"{}\", which is not a file in this folder; "
                      "files elsewhere are not read: download the checkpoint again",
                      path, name, file));
    }
    file_of_[name] = file;
    if (IsLoraName(name)) lora_names_.push_back(name);
  }
  return absl::OkStatus();
}

std::string CheckpointFiles::NameOf(std::string_view name) const {
  for (std::string& spelling : Spellings(name, /*with_lora=*/!lora_names_.empty())) {
    if (file_of_.contains(spelling)) return std::move(spelling);
  }
  return "";
}

CheckpointFiles::Found CheckpointFiles::Find(std::string_view name) {
  return FindExact(NameOf(name));
}

CheckpointFiles::Found CheckpointFiles::FindExact(std::string_view name) {
  Found found;
  const auto place = file_of_.find(name);
  if (place == file_of_.end()) return found;
  found.name = place->first;
  auto opened = opened_.find(place->second);
  if (opened == opened_.end()) {
    const std::string path = (fs::path(dir_) / place->second).string();
    opened = opened_.emplace(place->second, OpenTensorFile(path)).first;
  }
  found.file_error = opened->second.status();
  if (!opened->second.ok()) return found;
  found.file = *opened->second;
  const auto entry = found.file->tensors.find(place->first);
  if (entry != found.file->tensors.end()) found.entry = &entry->second;
  return found;
}

std::vector<std::string> CheckpointFiles::Names() const {
  std::vector<std::string> names;
  names.reserve(file_of_.size());
  for (const auto& [name, file] : file_of_) names.push_back(name);
  return names;
}

}  // namespace stagecoach::worker
