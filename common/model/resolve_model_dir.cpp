#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/model/gguf_config.h"
#include "common/model/model_spec.h"
#include "common/status.h"

namespace stagecoach {
namespace {

namespace fs = std::filesystem;

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Folders of huggingface_hub's cache, in its order of precedence.
std::vector<fs::path> CacheRoots() {
  if (const std::string hub = Environment("HF_HUB_CACHE"); !hub.empty()) return {hub};
  if (const std::string home = Environment("HF_HOME"); !home.empty())
    return {fs::path(home) / "hub"};
  if (const std::string xdg = Environment("XDG_CACHE_HOME"); !xdg.empty()) {
    return {fs::path(xdg) / "huggingface" / "hub"};
  }
  if (const std::string home = Environment("HOME"); !home.empty()) {
    return {fs::path(home) / ".cache" / "huggingface" / "hub"};
  }
  return {};
}

// True for `org/name` or `name` with the characters that the hub allows.
bool IsRepoId(std::string_view model) {
  if (model.empty() || std::count(model.begin(), model.end(), '/') > 1) return false;
  if (model.front() == '/' || model.back() == '/' || model.find("..") != model.npos) return false;
  return std::all_of(model.begin(), model.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == '/';
  });
}

std::string FirstWord(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// True for names such as "model-00002-of-00003.gguf".
bool IsSplitPart(const std::string& name) {
  constexpr size_t kTail = std::string_view("-00002-of-00003.gguf").size();
  return name.size() > kTail && name[name.size() - kTail] == '-' &&
         name.substr(name.size() - kTail + 6, 4) == "-of-";
}

// Returns the folder itself, or its only .gguf file if that holds all weights.
absl::StatusOr<std::string> WeightsOf(const std::string& folder) {
  std::vector<std::string> gguf_files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string extension = entry.path().extension().string();
    const std::string name = entry.path().filename().string();
    if (extension == ".safetensors" || name.starts_with("pytorch_model")) return folder;
    // Files named mmproj* hold the vision part of a multimodal model.
    if (extension == ".gguf" && !name.starts_with("mmproj")) gguf_files.push_back(name);
  }
  if (gguf_files.empty()) return folder;
  std::sort(gguf_files.begin(), gguf_files.end());
  if (IsSplitPart(gguf_files.front())) {
    return absl::UnimplementedError(
        fmt::format("{}: holds a model split over several .gguf files ({}, ...); join them first "
                    "(llama-gguf-split --merge {} OUT.gguf)",
                    folder, gguf_files.front(), gguf_files.front()));
  }
  if (gguf_files.size() == 1) return (fs::path(folder) / gguf_files.front()).string();
  return absl::InvalidArgumentError(fmt::format("{}: holds {} .gguf files; give one of them: {}",
                                                folder, gguf_files.size(),
                                                fmt::join(gguf_files, ", ")));
}

// Explains why a file cannot be served as a model by itself.
absl::Status NotAModel(const std::string& path) {
  std::error_code error;
  const fs::path folder = fs::path(path).parent_path();
  const std::string shown = folder.empty() ? "." : folder.string();
  if (fs::exists(folder / "config.json", error)) {
    return absl::InvalidArgumentError(fmt::format(
        "model {}: is a file inside a model's folder; give the folder: {}", path, shown));
  }
  return absl::InvalidArgumentError(fmt::format(
      "model {}: is a file, but not a GGUF file; give a model's folder, or a .gguf file", path));
}

}  // namespace

absl::StatusOr<std::string> ResolveModelDir(const std::string& model) {
  std::error_code error;
  if (IsGgufModel(model)) return model;
  if (fs::is_directory(model, error)) return WeightsOf(model);
  if (fs::is_regular_file(model, error)) return NotAModel(model);
  std::vector<std::string> looked_at = {model};
  if (IsRepoId(model)) {
    std::string folder = "models--" + model;
    if (const size_t slash = folder.find('/'); slash != folder.npos) folder.replace(slash, 1, "--");
    for (const fs::path& root : CacheRoots()) {
      const fs::path repo = root / folder;
      looked_at.push_back(repo.string());
      if (!fs::is_directory(repo, error)) continue;
      const std::string revision = FirstWord(repo / "refs" / "main");
      const bool plain =
          !revision.empty() && revision.find('/') == revision.npos && revision != "..";
      const fs::path snapshot = repo / "snapshots" / revision;
      if (plain && fs::is_directory(snapshot, error)) return WeightsOf(snapshot.string());
      return absl::NotFoundError(fmt::format(
          "model {}: {} holds no complete download (refs/main names no folder of snapshots/); run "
          "`hf download {}`",
          model, repo.string(), model));
    }
  }
  if (!IsRepoId(model)) {
    return absl::NotFoundError(
        fmt::format("model {}: there is no such folder or file; give a folder, a .gguf file, or "
                    "org/name in the "
                    "local Hugging Face cache",
                    model));
  }
  return absl::NotFoundError(
      fmt::format("model {}: not found; looked at {}; give a folder or a .gguf file, or run `hf "
                  "download {}` first",
                  model, fmt::join(looked_at, ", "), model));
}

}  // namespace stagecoach
