#include "worker/kv_store/disk_folder.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "common/status.h"
#include "worker/kv_store/kv_files.h"
#include "worker/kv_store/kv_key.h"

namespace stagecoach::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "layers-";
constexpr uint32_t kMostFolders = 4096;  // of the same layers

bool TakeText(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool TakeNumber(std::string_view& text, uint32_t& number) {
  const auto [end, error] = std::from_chars(text.begin(), text.end(), number);
  if (error != std::errc()) return false;
  text.remove_prefix(static_cast<size_t>(end - text.begin()));
  return true;
}

// Absent: no name of our folders.
std::optional<KvLayers> LayersOf(std::string_view name) {
  KvLayers layers;
  uint32_t n = 0;
  const bool is_ours = TakeText(name, kPrefix) && TakeNumber(name, layers.first) &&
                       TakeText(name, "-") && TakeNumber(name, layers.last) &&
                       TakeText(name, ".") && TakeNumber(name, n) && name.empty();
  return is_ours ? std::optional(layers) : std::nullopt;
}

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

// Appends the block's file; one that has gone meanwhile is none.
void AppendFile(const fs::path& path, const KvBlockId& block, std::vector<DiskFile>& files) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  files.push_back({.block = block,
                   .bytes = DiskBytes(static_cast<uint64_t>(info.st_size)),
                   .used_ns = Nanoseconds(info.st_mtim)});
}

}  // namespace

std::string DiskFolder::FolderOf(const KvBlockId& block) const {
  return fmt::format("{}/{:02x}", path, block[0]);
}

std::string DiskFolder::FileOf(const KvBlockId& block) const {
  return fmt::format("{}/{}", FolderOf(block), HexBlock({.block = block, .layer = 0}));
}

absl::StatusOr<bool> DiskFolder::TryLock() {
  UniqueFd folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.valid()) return absl::ErrnoToStatus(errno, path);
  if (flock(folder.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return false;
    return absl::ErrnoToStatus(errno, path);
  }
  lock = std::move(folder);
  return true;
}

absl::StatusOr<DiskFolder> LockDiskFolder(const std::string& dir, KvLayers layers) {
  for (uint32_t n = 0; n < kMostFolders; ++n) {
    DiskFolder folder{
        .path = fmt::format("{}/{}{}-{}.{}", dir, kPrefix, layers.first, layers.last, n),
        .layers = layers,
        .lock = {}};
    std::error_code error;
    fs::create_directories(dir, error);
    if (error) return absl::ErrnoToStatus(error.value(), dir);
    // Values hold what users have written.
    if (mkdir(folder.path.c_str(), 0700) != 0 && errno != EEXIST) {
      return absl::ErrnoToStatus(errno, folder.path);
    }
    SC_ASSIGN_OR_RETURN(const bool is_ours, folder.TryLock());
    if (is_ours) return folder;
  }
  return absl::ResourceExhaustedError(
      fmt::format("{}: {} processes use it for the same layers", dir, kMostFolders));
}

std::vector<DiskFolder> FindDiskFolders(const std::string& dir) {
  std::vector<DiskFolder> folders;
  std::error_code error;
  for (fs::directory_iterator at(dir, error), end; !error && at != end; at.increment(error)) {
    const std::optional<KvLayers> layers = LayersOf(at->path().filename().string());
    if (layers) folders.push_back({.path = at->path().string(), .layers = *layers, .lock = {}});
  }
  return folders;
}

absl::StatusOr<std::vector<DiskFile>> ScanDiskFolder(const DiskFolder& folder) {
  std::vector<DiskFile> files;
  for (int i = 0; i < 256; ++i) {
    const fs::path path = folder.FolderOf({static_cast<uint8_t>(i)});
    std::error_code error;
    for (fs::directory_iterator at(path, error), end; !error && at != end; at.increment(error)) {
      const std::string name = at->path().filename().string();
      const std::optional<KvBlockId> block = ParseHexBlock(name);
      if (block && (*block)[0] == i) {
        AppendFile(at->path(), *block, files);
      } else if (name.starts_with(kNewFilePrefix)) {
        unlink(at->path().c_str());
      }
    }
    if (error && error != std::errc::no_such_file_or_directory) {
      return absl::ErrnoToStatus(error.value(), path.string());
    }
  }
  return files;
}

}  // namespace stagecoach::worker
