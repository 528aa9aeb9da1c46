// KV blocks in a folder, which may be of a network's file system.
//
// A value is the file PATH/<first two hexadecimal digits of the block>/<all 32>-<layer>. It is
// written under a temporary name in the same folder and then renamed, so that a reader sees all of
// it or nothing. Only the user who runs the worker may read it. Missing folders are created.
//
// Nothing here removes files; the operator does, for example with
// `stagecoach kv clear` or `find PATH -type f -mtime +7 -delete`. The latter also removes the file
// new-XXXXXX that a process leaves if it is killed while it writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/kv_store/kv_store.h"

namespace stagecoach::worker {

inline constexpr std::string_view kDirUrl = "dir:";  // how the URL of such a store begins
inline bool IsDirUrl(std::string_view url) {
  return url.starts_with(kDirUrl) && url.size() > kDirUrl.size();
}
inline constexpr char kDirFileMark = '-';  // between block and layer
// The folder of the blocks with this first byte, and the file of a value, in a store at `path`.
std::string DirFolder(const std::string& path, uint8_t first_byte);
std::string DirFile(const std::string& path, const KvKey& key);

// Looks at the deadline before each file: a file system that hangs holds a call for longer.
class DirKvStore final : public KvStore {
 public:
  DirKvStore(std::string path, size_t max_value_bytes)
      : path_(std::move(path)), max_value_bytes_(max_value_bytes) {}

  std::string name() const override { return std::string(kDirUrl) + path_; }
  // A file that this user may not read is a missing one.
  absl::StatusOr<std::vector<std::optional<std::string>>> Get(std::span<const KvKey> keys,
                                                              Clock::time_point deadline) override;
  absl::StatusOr<std::vector<bool>> Has(std::span<const KvKey> keys,
                                        Clock::time_point deadline) override;
  absl::Status Put(std::span<const KvValue> values, Clock::time_point deadline) override;

 private:
  absl::StatusOr<std::optional<std::string>> Read(const std::string& file) const;
  absl::Status Write(const KvValue& value) const;

  const std::string path_;
  const size_t max_value_bytes_;
};

}  // namespace stagecoach::worker
