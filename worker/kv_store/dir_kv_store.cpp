#include "worker/kv_store/dir_kv_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "common/check.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "worker/kv_store/kv_files.h"

namespace stagecoach::worker {

std::string DirFolder(const std::string& path, uint8_t first_byte) {
  return fmt::format("{}/{:02x}", path, first_byte);
}

std::string DirFile(const std::string& path, const KvKey& key) {
  return fmt::format("{}/{}", DirFolder(path, key.block[0]), KvKeyText(key, kDirFileMark));
}

absl::StatusOr<std::vector<std::optional<std::string>>> DirKvStore::Get(
    std::span<const KvKey> keys, Clock::time_point deadline) {
  std::vector<std::optional<std::string>> values;
  values.reserve(keys.size());
  for (const KvKey& key : keys) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    SC_ASSIGN_OR_RETURN(std::optional<std::string> value, Read(DirFile(path_, key)));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<std::vector<bool>> DirKvStore::Has(std::span<const KvKey> keys,
                                                  Clock::time_point deadline) {
  std::vector<bool> found;
  found.reserve(keys.size());
  for (const KvKey& key : keys) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    found.push_back(access(DirFile(path_, key).c_str(), R_OK) == 0);
  }
  return found;
}

absl::StatusOr<std::optional<std::string>> DirKvStore::Read(const std::string& path) const {
  const absl::StatusOr<OpenedFile> file = OpenFile(path);
  if (absl::IsNotFound(file.status()) || absl::IsPermissionDenied(file.status())) {
    return std::nullopt;
  }
  SC_RETURN_IF_ERROR(file.status());
  if (file->n_bytes > max_value_bytes_) return std::nullopt;
  std::string value(file->n_bytes, '\0');
  const ssize_t n_read = ReadAt(file->fd.get(), value.data(), value.size(), 0);
  if (n_read < 0) return absl::ErrnoToStatus(errno, path);
  value.resize(static_cast<size_t>(n_read));  // shorter if somebody has cut it
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
  const std::string path = DirFile(path_, value.key);
  std::string temporary;
  const UniqueFd file = NewFileIn(DirFolder(path_, value.key.block[0]), temporary);
  if (!file.valid()) return absl::ErrnoToStatus(errno, path);
  if (WriteAll(file.get(), value.bytes) && rename(temporary.c_str(), path.c_str()) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  unlink(temporary.c_str());
  return absl::ErrnoToStatus(error, path);
}

}  // namespace stagecoach::worker
