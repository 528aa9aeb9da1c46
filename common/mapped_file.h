// A file mapped read-only into memory: only the pages that are touched are read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// Thread-safe. A file that shrinks while it is mapped, or whose disk fails, ends the process: the
// kernel has no other way to say so (SIGBUS) once a page is touched that is not there. A handler
// then writes "error: PATH: ..." and exits with code 1.
class MappedFile {
 public:
  // NOT_FOUND: no such file; PERMISSION_DENIED; INVALID_ARGUMENT: not a regular file, or a Git LFS
  // pointer where its content should be. An empty file is an empty span.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const;

  // Hints about bytes [begin, end): will be read soon; will not be read again.
  void WillNeed(uint64_t begin, uint64_t end) const;
  void DontNeed(uint64_t begin, uint64_t end) const;

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);

  const std::string path_;
  const std::span<const std::byte> bytes_;
  const char* const known_path_;  // never freed
};

// The path of the mapped file that was asked for its bytes last, in the whole process; empty: none
// was. What a read that does not return is likely to be of.
std::string FileBeingRead();

}  // namespace stagecoach
