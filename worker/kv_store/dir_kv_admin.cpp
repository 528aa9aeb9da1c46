#include "worker/kv_store/dir_kv_admin.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>

#include "common/status.h"
#include "worker/kv_store/dir_kv_store.h"
#include "worker/kv_store/kv_files.h"

namespace stagecoach::worker {

namespace fs = std::filesystem;
using std::chrono::seconds;

absl::StatusOr<std::unique_ptr<KvStoreAdmin>> DirKvAdmin::Open(std::string path) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISDIR(info.st_mode)) return absl::ErrnoToStatus(ENOTDIR, path);
  return std::unique_ptr<KvStoreAdmin>(new DirKvAdmin(std::move(path)));
}

std::string DirKvAdmin::name() const { return std::string(kDirUrl) + path_; }

absl::Status DirKvAdmin::Scan(const std::function<absl::Status(std::span<const StoredKv>)>& visit) {
  for (int first_byte = 0; first_byte < 256; ++first_byte) {
    SC_ASSIGN_OR_RETURN(const std::vector<StoredKv> values,
                        ValuesIn(static_cast<uint8_t>(first_byte)));
    if (!values.empty()) SC_RETURN_IF_ERROR(visit(values));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<StoredKv>> DirKvAdmin::ValuesIn(uint8_t first_byte) const {
  const std::string folder = DirFolder(path_, first_byte);
  const auto now = std::chrono::system_clock::now();
  std::vector<StoredKv> values;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::optional<KvKey> key = ParseKvKey(at->path().filename().string(), kDirFileMark);
    struct stat info;
    const bool is_ours = key && key->block[0] == first_byte &&
                         lstat(at->path().c_str(), &info) == 0 && S_ISREG(info.st_mode);
    if (!is_ours) continue;
    const auto written = std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec);
    values.push_back({.key = *key,
                      .bytes = static_cast<uint64_t>(info.st_size),
                      .age = std::max(std::chrono::floor<seconds>(now - written), seconds(0))});
  }
  const bool has_no_folder =
      error == std::errc::no_such_file_or_directory || error == std::errc::not_a_directory;
  if (error && !has_no_folder) return absl::ErrnoToStatus(error.value(), folder);
  return values;
}

absl::StatusOr<std::vector<std::optional<std::string>>> DirKvAdmin::Read(
    std::span<const StoredKv> values) {
  std::vector<std::optional<std::string>> all;
  for (const StoredKv& value : values) {
    const std::string path = DirFile(path_, value.key);
    const absl::StatusOr<OpenedFile> file = OpenFile(path);
    all.emplace_back();
    if (absl::IsNotFound(file.status())) continue;
    SC_RETURN_IF_ERROR(file.status());
    std::string& bytes = all.back().emplace(file->n_bytes, '\0');
    const ssize_t n_read = ReadAt(file->fd.get(), bytes.data(), bytes.size(), 0);
    if (n_read < 0) return absl::ErrnoToStatus(errno, path);
    bytes.resize(static_cast<size_t>(n_read));
  }
  return all;
}

absl::StatusOr<uint64_t> DirKvAdmin::Delete(std::span<const StoredKv> values) {
  uint64_t n_deleted = 0;
  for (const StoredKv& value : values) {
    const std::string path = DirFile(path_, value.key);
    if (unlink(path.c_str()) == 0) {
      ++n_deleted;
    } else if (errno != ENOENT) {
      return absl::ErrnoToStatus(errno, path);
    }
  }
  return n_deleted;
}

}  // namespace stagecoach::worker
