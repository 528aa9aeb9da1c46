// Helpers of the fuzz targets.
#pragma once

#include <stdlib.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "absl/status/status.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace stagecoach::fuzz {

inline std::string_view Text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// An error must blame the input. INTERNAL means a panic or a broken invariant, so it is a finding.
// Every byte of the message is read, so that the sanitizers check it.
inline void Accept(const absl::Status& status) {
  if (status.ok()) return;
  const std::string text(status.message());
  if (text.empty() || absl::IsInternal(status) || absl::IsUnknown(status)) {
    std::fprintf(stderr, "not the input's fault: %s\n", status.ToString().c_str());
    std::abort();
  }
}

// A folder in memory for parsers that read files; one per process.
class Folder {
 public:
  Folder() {
    const bool in_memory = std::filesystem::is_directory("/dev/shm");
    std::string name = (in_memory ? "/dev/shm" : "/tmp") + std::string("/fuzz_folder_XXXXXX");
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  const std::string& path() const { return path_; }
  std::string File(const char* name) const { return path_ + "/" + name; }
  void Write(const char* name, std::string_view content) const {
    std::ofstream file(File(name), std::ios::binary | std::ios::trunc);
    file.write(content.data(), static_cast<std::streamsize>(content.size()));
  }

 private:
  std::string path_;
};

inline const Folder& TheFolder() {
  static const Folder folder;
  return folder;
}

}  // namespace stagecoach::fuzz
