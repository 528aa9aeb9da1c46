#include "worker/kv_store/dir_kv_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "common/check.h"
#include "common/status.h"
#include "common/unique_fd.h"

namespace stagecoach::worker {
namespace {

absl::Status CheckTime(const std::string& name, KvStore::Clock::time_point deadline) {
  if (KvStore::Clock::now() < deadline) return absl::OkStatus();
  return absl::UnavailableError(name + ": out of time");
}

bool WriteAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Creates a file of a new name in the folder, and the folder if it is missing. Sets `name`. Sets
// errno if the file is not valid.
UniqueFd NewFileIn(const std::string& folder, std::string& name) {
  const std::string pattern = folder + "/new-XXXXXX";
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

}  // namespace

std::string DirKvStore::FolderOf(const KvKey& key) const {
  return fmt::format("{}/{:02x}", path_, key.block[0]);
}

std::string DirKvStore::FileOf(const KvKey& key) const {
  return fmt::format("{}/{}-{}", FolderOf(key), HexBlock(key), key.layer);
}

absl::StatusOr<std::vector<std::optional<std::string>>> DirKvStore::Get(
    std::span<const KvKey> keys, Clock::time_point deadline) {
  std::vector<std::optional<std::string>> values;
  values.reserve(keys.size());
  for (const KvKey& key : keys) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    SC_ASSIGN_OR_RETURN(std::optional<std::string> value, Read(FileOf(key)));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<std::optional<std::string>> DirKvStore::Read(const std::string& path) const {
  // Without O_NONBLOCK, somebody's pipe of this name would hold us.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) {
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES) return std::nullopt;
    return absl::ErrnoToStatus(errno, path);
  }
  struct stat info;
  if (fstat(file.get(), &info) != 0) return absl::ErrnoToStatus(errno, path);
  if (!S_ISREG(info.st_mode) || std::cmp_greater(info.st_size, max_value_bytes_)) {
    return std::nullopt;
  }
  std::string value(static_cast<size_t>(info.st_size), '\0');
  size_t n_read = 0;
  while (n_read < value.size()) {
    const ssize_t n = read(file.get(), value.data() + n_read, value.size() - n_read);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return absl::ErrnoToStatus(errno, path);
    if (n == 0) break;  // somebody has cut it
    n_read += static_cast<size_t>(n);
  }
  value.resize(n_read);
  return value;
}

absl::Status DirKvStore::Put(std::span<const KvValue> values, Clock::time_point deadline) {
  for (const KvValue& value : values) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    SC_RETURN_IF_ERROR(Write(value));
  }
  return absl::OkStatus();
}

// Nothing waits for the disk: after a power cut, a reader finds out by the entry's checksum.
absl::Status DirKvStore::Write(const KvValue& value) const {
  SC_CHECK(!value.bytes.empty() && value.bytes.size() <= max_value_bytes_);
  const std::string path = FileOf(value.key);
  std::string temporary;
  const UniqueFd file = NewFileIn(FolderOf(value.key), temporary);
  if (!file.valid()) return absl::ErrnoToStatus(errno, path);
  if (WriteAll(file.get(), value.bytes) && rename(temporary.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  unlink(temporary.c_str());
  return absl::ErrnoToStatus(error, path);
}

}  // namespace stagecoach::worker
