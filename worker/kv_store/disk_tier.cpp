#include "worker/kv_store/disk_tier.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "common/size.h"
#include "worker/kv_store/disk_folder.h"

namespace stagecoach::worker {

namespace fs = std::filesystem;

absl::StatusOr<DiskTier> ParseDiskTier(std::string_view text) {
  const auto invalid = [&](const std::string& why) {
    return absl::InvalidArgumentError(fmt::format(
        "\"{}\" is no folder with a size: {}; write it like /mnt/kv or /mnt/kv:200GiB", text, why));
  };
  DiskTier tier{.path = std::string(text)};
  const size_t colon = text.rfind(':');
  if (colon != std::string_view::npos && text.find('/', colon) == std::string_view::npos) {
    const absl::StatusOr<uint64_t> bytes = ParseBytes(text.substr(colon + 1));
    if (!bytes.ok()) return invalid(std::string(bytes.status().message()));
    if (*bytes == 0) return invalid("the size must be more than 0");
    tier = {.path = std::string(text.substr(0, colon)), .bytes = *bytes};
  }
  if (tier.path.empty()) return invalid("the folder is missing");
  return tier;
}

absl::StatusOr<uint64_t> DefaultDiskBytes(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), path);
  struct statvfs disk;
  if (statvfs(path.c_str(), &disk) != 0) return absl::ErrnoToStatus(errno, path);
  uint64_t bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  // A worker that runs already may remove files meanwhile.
  fs::recursive_directory_iterator at(path, error);
  for (const fs::recursive_directory_iterator end; !error && at != end; at.increment(error)) {
    struct stat info;
    const bool is_file = lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode);
    if (is_file) bytes += DiskBytes(static_cast<uint64_t>(info.st_size));
  }
  return bytes / 2;
}

}  // namespace stagecoach::worker
