// Which files a disk tier has, and which of them was used longest ago.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "worker/kv_store/disk_folder.h"

namespace stagecoach::worker {

// One thread at a time.
class DiskIndex {
 public:
  using Id = std::pair<size_t, KvBlockId>;  // number of the folder, block

  size_t size() const { return files_.size(); }
  uint64_t bytes() const { return bytes_; }
  bool Has(const Id& id) const { return files_.contains(id); }
  // The time of use of each file is kept on the disk, too, so it is one of all processes.
  void Add(const Id& id, uint64_t bytes, int64_t used_ns) {
    Remove(id);
    files_[id] = {bytes, used_ns};
    by_use_.emplace(used_ns, id);
    bytes_ += bytes;
  }
  void Use(const Id& id, int64_t used_ns) {
    const auto file = files_.find(id);
    if (file != files_.end()) Add(id, file->second.bytes, used_ns);
  }
  void Remove(const Id& id) {
    const auto file = files_.find(id);
    if (file == files_.end()) return;
    by_use_.erase({file->second.used_ns, id});
    bytes_ -= file->second.bytes;
    files_.erase(file);
  }
  // The file that was used longest ago.
  std::optional<Id> Oldest() const {
    return by_use_.empty() ? std::nullopt : std::optional(by_use_.begin()->second);
  }

 private:
  struct File {
    uint64_t bytes;
    int64_t used_ns;
  };
  std::map<Id, File> files_;
  std::set<std::pair<int64_t, Id>> by_use_;
  uint64_t bytes_ = 0;
};

}  // namespace stagecoach::worker
