// The folders of a disk tier, one per running worker:
//
//   DIR/layers-<first>-<last>.<n>/<first two hexadecimal digits of the block>/<all 32>
//
// A file holds the layers of one block that were put together (disk_block.h). A folder belongs to
// the process that holds its lock, which ends with the process, however that ends.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/unique_fd.h"

namespace stagecoach::worker {

using KvBlockId = std::array<uint8_t, 16>;  // KvKey::block

// What a file of so many bytes counts on the disk.
constexpr uint64_t DiskBytes(uint64_t file_bytes) { return (file_bytes + 4095) / 4096 * 4096; }

// Layers of the model, both included.
struct KvLayers {
  uint32_t first = 0;
  uint32_t last = 0;

  bool Has(uint32_t layer) const { return first <= layer && layer <= last; }
  bool operator==(const KvLayers&) const = default;
};

struct DiskFolder {
  std::string path;
  KvLayers layers;
  UniqueFd lock;  // not valid: the folder is not ours, and only read

  std::string FolderOf(const KvBlockId& block) const;
  std::string FileOf(const KvBlockId& block) const;
  // Whether it is ours now; false: it is somebody else's.
  absl::StatusOr<bool> TryLock();
};

// Locks the first folder of these layers that is free. Creates it if there is none, and `dir`.
absl::StatusOr<DiskFolder> LockDiskFolder(const std::string& dir, KvLayers layers);

// All folders that are in `dir` now, without locks.
std::vector<DiskFolder> FindDiskFolders(const std::string& dir);

struct DiskFile {
  KvBlockId block;
  uint64_t bytes = 0;   // DiskBytes
  int64_t used_ns = 0;  // time of its last change, which a store sets when the file is used
};

// The files of a folder that is ours. Removes what a killed process has left half written. Other
// files are left alone.
absl::StatusOr<std::vector<DiskFile>> ScanDiskFolder(const DiskFolder& folder);

}  // namespace stagecoach::worker
