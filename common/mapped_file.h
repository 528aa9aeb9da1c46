// A file mapped read-only into memory. Only pages that are touched are read from disk.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"

namespace stagecoach {

// Thread-safe. If a mapped file shrinks or its disk fails, touching a missing page raises SIGBUS,
// the kernel's only way to report it. Our handler then writes "error: PATH: ..." and exits with
// code 1.
class MappedFile {
 public:
  // NOT_FOUND if the file does not exist; other failures to open it have the status of their errno.
  // INVALID_ARGUMENT if it is not a regular file, or is a Git LFS pointer instead of the content.
  // RESOURCE_EXHAUSTED if it cannot be mapped. The bytes of an empty file are an empty span.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const;

  // Hints to the kernel about bytes [begin, end): they will be read soon; they will not be read
  // again.
  void WillNeed(uint64_t begin, uint64_t end) const;
  void DontNeed(uint64_t begin, uint64_t end) const;

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes);

  const std::string path_;
  const std::span<const std::byte> bytes_;
  const char* const known_path_;  // never freed
};

// Path of the mapped file from which this process last requested bytes, or empty. If a read does
// not return, this is probably the file it reads.
std::string FileBeingRead();

}  // namespace stagecoach
