#include "worker/kv_store/disk_kv_store.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>

#include "common/check.h"
#include "common/status.h"
#include "common/unique_fd.h"
#include "common/unix_time.h"
#include "worker/kv_store/disk_block.h"
#include "worker/kv_store/kv_files.h"

namespace stagecoach::worker {
namespace {

bool SetTime(int fd, int64_t used_ns) {
  constexpr int64_t kSecond = 1'000'000'000;
  const timespec time{.tv_sec = used_ns / kSecond, .tv_nsec = used_ns % kSecond};
  const std::array<timespec, 2> times = {time, time};
  return futimens(fd, times.data()) == 0;
}

const KvBlockId& BlockOf(const KvKey& key) { return key.block; }
const KvBlockId& BlockOf(const KvValue& value) { return value.key.block; }

// The first items of the span: those of the first one's block.
template <typename T>
std::span<const T> FirstBlock(std::span<const T> items) {
  const auto end = std::ranges::find_if(
      items, [&](const T& item) { return BlockOf(item) != BlockOf(items.front()); });
  return items.first(static_cast<size_t>(end - items.begin()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskKvStore>> DiskKvStore::Open(const Config& config) {
  SC_CHECK(config.max_bytes > 0 && config.max_value_bytes > 0 &&
           config.layers.first <= config.layers.last);
  std::vector<DiskFolder> folders;
  SC_ASSIGN_OR_RETURN(folders.emplace_back(), LockDiskFolder(config.path, config.layers));
  SC_ASSIGN_OR_RETURN(const std::vector<DiskFile> files, ScanDiskFolder(folders[0]));
  for (DiskFolder& found : FindDiskFolders(config.path)) {
    if (found.path != folders[0].path) folders.push_back(std::move(found));
  }
  std::unique_ptr<DiskKvStore> store(new DiskKvStore(config, std::move(folders)));
  const MutexLock lock(store->mutex_);
  SC_RETURN_IF_ERROR(store->AddFiles(0, files));
  return store;
}

absl::StatusOr<std::vector<std::optional<std::string>>> DiskKvStore::Get(
    std::span<const KvKey> keys, Clock::time_point deadline) {
  std::vector<std::optional<std::string>> values(keys.size());
  // One for each block, if all keys were of different blocks.
  int64_t used_ns = NextTimes(keys.size()) + static_cast<int64_t>(keys.size());
  for (std::span<std::optional<std::string>> rest(values); !rest.empty();) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    const std::span<const KvKey> block = FirstBlock(keys);
    SC_RETURN_IF_ERROR(Read(block, --used_ns, rest.first(block.size())));
    keys = keys.subspan(block.size());
    rest = rest.subspan(block.size());
  }
  return values;
}

absl::StatusOr<std::vector<bool>> DiskKvStore::Has(std::span<const KvKey> keys,
                                                   Clock::time_point deadline) {
  std::vector<bool> found;
  found.reserve(keys.size());
  for (const KvKey& key : keys) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    bool has = false;
    for (size_t folder = 0; folder < folders_.size() && !has; ++folder) {
      has = folders_[folder].layers.Has(key.layer) && HasIn(folder, key.block);
    }
    found.push_back(has);
  }
  return found;
}

bool DiskKvStore::HasIn(size_t folder, const KvBlockId& block) const {
  {
    const MutexLock lock(mutex_);
    if (owned_[folder]) return index_.Has({folder, block});
  }
  return access(folders_[folder].FileOf(block).c_str(), R_OK) == 0;
}

absl::Status DiskKvStore::Put(std::span<const KvValue> values, Clock::time_point deadline) {
  if (values.empty()) return absl::OkStatus();
  SC_RETURN_IF_ERROR(Adopt());
  int64_t used_ns = NextTimes(values.size()) + static_cast<int64_t>(values.size());
  while (!values.empty()) {
    SC_RETURN_IF_ERROR(CheckTime(name(), deadline));
    const std::span<const KvValue> block = FirstBlock(values);
    SC_RETURN_IF_ERROR(Write(block, --used_ns));
    values = values.subspan(block.size());
  }
  return absl::OkStatus();
}

absl::Status DiskKvStore::Write(std::span<const KvValue> values, int64_t used_ns) {
  for (const KvValue& value : values) {
    SC_CHECK(!value.bytes.empty() && value.bytes.size() <= max_value_bytes_);
    SC_CHECK(folders_[0].layers.Has(value.key.layer));
  }
  const KvBlockId& block = values.front().key.block;
  const std::string path = folders_[0].FileOf(block);
  const uint64_t bytes = DiskBytes(DiskBlockBytes(values));
  {
    const MutexLock lock(mutex_);
    SC_RETURN_IF_ERROR(MakeRoom(bytes));
    being_written_bytes_ += bytes;
  }
  std::string temporary;
  const UniqueFd file = NewFileIn(folders_[0].FolderOf(block), temporary);
  bool written = file.valid() && WriteDiskBlock(file.get(), values) && SetTime(file.get(), used_ns);
  int error = errno;
  const MutexLock lock(mutex_);
  being_written_bytes_ -= bytes;
  if (written) {
    // Under the lock, so that the index has what is there.
    written = rename(temporary.c_str(), path.c_str()) == 0;
    error = errno;
  }
  if (written) {
    index_.Add({0, block}, bytes, used_ns);
    return absl::OkStatus();
  }
  if (file.valid()) unlink(temporary.c_str());
  return absl::ErrnoToStatus(error, path);
}

absl::Status DiskKvStore::Read(std::span<const KvKey> keys, int64_t used_ns,
                               std::span<std::optional<std::string>> values) {
  const auto is_missing_in = [&](const DiskFolder& folder) {
    for (size_t i = 0; i < keys.size(); ++i) {
      if (!values[i] && folder.layers.Has(keys[i].layer)) return true;
    }
    return false;
  };
  for (size_t folder = 0; folder < folders_.size(); ++folder) {
    if (!is_missing_in(folders_[folder])) continue;
    SC_RETURN_IF_ERROR(ReadIn(folder, keys, used_ns, values));
  }
  return absl::OkStatus();
}

absl::Status DiskKvStore::ReadIn(size_t folder, std::span<const KvKey> keys, int64_t used_ns,
                                 std::span<std::optional<std::string>> values) {
  const DiskIndex::Id id(folder, keys.front().block);
  {
    const MutexLock lock(mutex_);
    if (owned_[folder] && !index_.Has(id)) return absl::OkStatus();
  }
  const std::string path = folders_[folder].FileOf(id.second);
  const absl::StatusOr<OpenedFile> file = OpenFile(path);
  const bool is_gone = absl::IsNotFound(file.status()) || absl::IsPermissionDenied(file.status());
  if (!is_gone) SC_RETURN_IF_ERROR(file.status());
  const DiskRead read =
      is_gone ? DiskRead::kDamaged
              : ReadDiskBlock(file->fd.get(), file->n_bytes, keys, max_value_bytes_, values);
  const int error = errno;
  // Also tells other processes. If it fails, the file only seems to be older.
  if (read == DiskRead::kOk) SetTime(file->fd.get(), used_ns);
  {
    const MutexLock lock(mutex_);
    if (read == DiskRead::kOk) {
      index_.Use(id, used_ns);
    } else if (owned_[folder]) {
      // A place of the disk that cannot be read must not fail each later call.
      Remove(id).IgnoreError();
    }
  }
  return read == DiskRead::kError ? absl::ErrnoToStatus(error, path) : absl::OkStatus();
}

absl::Status DiskKvStore::Adopt() {
  {
    const MutexLock lock(mutex_);
    if (has_adopted_) return absl::OkStatus();
    has_adopted_ = true;
  }
  for (size_t folder = 1; folder < folders_.size(); ++folder) {
    // One that cannot be locked, for whatever reason, is only read.
    if (!folders_[folder].TryLock().value_or(false)) continue;
    SC_ASSIGN_OR_RETURN(const std::vector<DiskFile> files, ScanDiskFolder(folders_[folder]));
    const MutexLock lock(mutex_);
    SC_RETURN_IF_ERROR(AddFiles(folder, files));
  }
  return absl::OkStatus();
}

absl::Status DiskKvStore::AddFiles(size_t folder, std::span<const DiskFile> files) {
  for (const DiskFile& file : files) {
    index_.Add({folder, file.block}, file.bytes, file.used_ns);
    last_used_ns_ = std::max(last_used_ns_, file.used_ns);
  }
  owned_[folder] = true;
  return MakeRoom(0);
}

absl::Status DiskKvStore::MakeRoom(uint64_t bytes) {
  if (bytes > max_bytes_) {
    return absl::ResourceExhaustedError(fmt::format("{}: {} bytes of a block are more than its {}",
                                                    folders_[0].path, bytes, max_bytes_));
  }
  while (index_.bytes() + being_written_bytes_ + bytes > max_bytes_) {
    const std::optional<DiskIndex::Id> oldest = index_.Oldest();
    if (!oldest) {
      return absl::ResourceExhaustedError(
          fmt::format("{}: the blocks that are being written fill it", folders_[0].path));
    }
    SC_RETURN_IF_ERROR(Remove(*oldest));
  }
  return absl::OkStatus();
}

absl::Status DiskKvStore::Remove(const DiskIndex::Id& id) {
  const std::string path = folders_[id.first].FileOf(id.second);
  if (unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    return absl::ErrnoToStatus(errno, path);
  }
  index_.Remove(id);
  return absl::OkStatus();
}

void DiskKvStore::Drop(const KvKey& key) {
  const MutexLock lock(mutex_);
  for (size_t folder = 0; folder < folders_.size(); ++folder) {
    const bool may_have_it = owned_[folder] && folders_[folder].layers.Has(key.layer);
    if (may_have_it) Remove({folder, key.block}).IgnoreError();
  }
}

DiskKvStore::Usage DiskKvStore::usage() const {
  const MutexLock lock(mutex_);
  return {.n_files = index_.size(), .bytes = index_.bytes()};
}

int64_t DiskKvStore::NextTimes(size_t n) {
  const MutexLock lock(mutex_);
  const int64_t first = std::max(static_cast<int64_t>(UnixNanoseconds()), last_used_ns_ + 1);
  last_used_ns_ = first + static_cast<int64_t>(n);
  return first;
}

}  // namespace stagecoach::worker
