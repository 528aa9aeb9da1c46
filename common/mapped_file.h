// A file mapped read-only into memory: only the pages that are touched are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// Thread-safe. A file that shrinks while it is mapped ends the process (SIGBUS); nothing guards
// against that.
class MappedFile {
 public:
  // NOT_FOUND: no such file; PERMISSION_DENIED; INVALID_ARGUMENT: not a regular file, or a Git LFS
  // pointer where its content should be. An empty file is an empty span.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Hints about bytes [begin, end): will be read soon; will not be read again.
  void WillNeed(uint64_t begin, uint64_t end) const;
  void DontNeed(uint64_t begin, uint64_t end) const;

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace stagecoach
