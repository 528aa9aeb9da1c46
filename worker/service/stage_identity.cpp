#include "worker/service/stage_identity.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

namespace stagecoach::worker {
namespace {

void AddFile(const std::string& path, std::string* identity) {
  struct stat file{};
  if (stat(path.c_str(), &file) != 0) return;
  *identity += fmt::format("{} {}:{} {} {}.{:09}\n", path, file.st_dev, file.st_ino, file.st_size,
                           file.st_mtim.tv_sec, file.st_mtim.tv_nsec);
}

// A file, or the files in a folder.
void AddFiles(const std::string& path, std::string* identity) {
  std::error_code error;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    files.push_back(entry.path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) files.push_back(path);
  for (const std::string& file : files) AddFile(file, identity);
}

}  // namespace

std::string StageIdentity(const v1::LoadRequest& request, const kernels::Ops& ops) {
  v1::LoadRequest load = request;
  load.clear_lease();
  load.clear_token_table();
  load.clear_n_local_workers();
  load.mutable_config()->clear_kv_memory_bytes();
  std::string identity = ops.Describe() + "\n" + load.SerializeAsString() + "\n";
  AddFile("/proc/self/exe", &identity);
  AddFiles(request.model_dir(), &identity);
  if (const std::string& adapter = request.config().adapter_dir(); !adapter.empty()) {
    AddFiles(adapter, &identity);
  }
  return identity;
}

}  // namespace stagecoach::worker
