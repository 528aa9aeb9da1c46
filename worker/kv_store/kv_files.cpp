#include "worker/kv_store/kv_files.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

namespace stagecoach::worker {

absl::Status CheckTime(const std::string& name, KvStore::Clock::time_point deadline) {
  if (KvStore::Clock::now() < deadline) return absl::OkStatus();
  return absl::UnavailableError(name + ": out of time");
}

UniqueFd NewFileIn(const std::string& folder, std::string& name) {
  const std::string pattern = folder + "/" + std::string(kNewFilePrefix) + "XXXXXX";
  name = pattern;
  UniqueFd file(mkostemp(name.data(), O_CLOEXEC));
  if (file.valid() || errno != ENOENT) return file;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  name = pattern;
  if (!error) return UniqueFd(mkostemp(name.data(), O_CLOEXEC));
  errno = error.value();
  return UniqueFd();
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

absl::StatusOr<OpenedFile> OpenFile(const std::string& path) {
  // Without O_NONBLOCK, somebody's pipe of this name would hold us.
  UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return absl::ErrnoToStatus(errno == ENOTDIR ? ENOENT : errno, path);
  struct stat info;
  if (fstat(file.get(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::NotFoundError(path + ": not a file");
  return OpenedFile{.fd = std::move(file), .n_bytes = static_cast<size_t>(info.st_size)};
}

ssize_t ReadAt(int fd, char* to, size_t n, size_t offset) {
  size_t n_read = 0;
  while (n_read < n) {
    const ssize_t n_now = pread(fd, to + n_read, n - n_read, static_cast<off_t>(offset + n_read));
    if (n_now < 0 && errno == EINTR) continue;
    if (n_now < 0) return -1;
    if (n_now == 0) break;
    n_read += static_cast<size_t>(n_now);
  }
  return static_cast<ssize_t>(n_read);
}

}  // namespace stagecoach::worker
