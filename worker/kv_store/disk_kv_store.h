// KV blocks on a disk of this machine: a tier of one worker, with a bound. What was used longest
// ago gives way to new blocks.
//
// Several workers, of one server or of several, may use the same folder at once. Each writes into a
// folder of its own (disk_folder.h), also after a restart: the first one of its layers that is
// free. So it finds what it has saved. It also reads the blocks of other folders with layers that
// it wants: those of other servers, and those of an earlier run with another number of stages. The
// first Put takes over folders that nobody uses any more, so that they do not grow old beside the
// bound. By then all workers of the server must have opened theirs.
//
// Nothing waits for the disk. A file is written under a temporary name and then renamed, so a
// process may be killed at any time. After a power cut, a file may be damaged: one whose form is
// wrong is removed when it is read, and one whose bytes are wrong is noticed by the checksum of
// kv_entry.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "worker/kv_store/disk_folder.h"
#include "worker/kv_store/disk_index.h"
#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

// Thread-safe. Looks at the deadline before each file: a disk that hangs holds a call for longer.
class DiskKvStore final : public KvStore {
 public:
  struct Config {
    std::string path;  // created if it is missing
    KvLayers layers;   // of the values that are put
    // Bound of the files' sizes, each rounded up to 4 KiB, above 0. Folders and the file system's
    // own needs come on top.
    uint64_t max_bytes = 0;
    size_t max_value_bytes = 0;  // as OpenKvStore
  };
  struct Usage {
    uint64_t n_files = 0;  // a file for each block
    uint64_t bytes = 0;
  };

  // Reads the names of all files. Removes old ones if they are more than the bound.
  static absl::StatusOr<std::unique_ptr<DiskKvStore>> Open(const Config& config);

  std::string name() const override { return "disk:" + folders_[0].path; }
  // A value that was read counts as used, the first block of a call as the last one used: without
  // it, the others are of no use.
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point deadline) override;
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys,
                                        Clock::time_point deadline) override;
  // The values of a block are next to each other. They replace all that this worker has put for the
  // block, other layers, too. RESOURCE_EXHAUSTED: the disk is full, or a block is larger than the
  // bound.
  absl::Status Put(std::span<const KvValue> values, Clock::time_point deadline) override;

  // Removes the files with this value, which was damaged.
  void Drop(const KvKey& key);
  Usage usage() const;

 private:
  DiskKvStore(const Config& config, std::vector<DiskFolder> folders)
      : max_bytes_(config.max_bytes),
        max_value_bytes_(config.max_value_bytes),
        folders_(std::move(folders)),
        owned_(folders_.size()) {}

  bool HasIn(size_t folder, const KvBlockId& block) const;
  absl::Status Write(std::span<const KvValue> values, int64_t used_ns);
  // `keys` are of one block; sets those of `values` that are absent.
  absl::Status Read(std::span<const KvKey> keys, int64_t used_ns,
                    std::span<std::optional<std::string>> values);
  absl::Status ReadIn(size_t folder, std::span<const KvKey> keys, int64_t used_ns,
                      std::span<std::optional<std::string>> values);
  // Takes over the folders that nobody uses.
  absl::Status Adopt();
  absl::Status AddFiles(size_t folder, std::span<const DiskFile> files)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes old files until there is room for so many bytes more.
  absl::Status MakeRoom(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Remove(const DiskIndex::Id& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first of n times of use, later than all before. They are of the clock if it goes forward.
  int64_t NextTimes(size_t n);

  const uint64_t max_bytes_;
  const size_t max_value_bytes_;
  // The first one is this worker's own. Their number does not change.
  std::vector<DiskFolder> folders_;
  mutable Mutex mutex_;
  std::vector<bool> owned_ ABSL_GUARDED_BY(mutex_);  // per folder: its files are in the index
  DiskIndex index_ ABSL_GUARDED_BY(mutex_);
  uint64_t being_written_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_used_ns_ ABSL_GUARDED_BY(mutex_) = 0;
  bool has_adopted_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::worker
