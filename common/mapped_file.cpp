#include "common/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace stagecoach {
namespace {

uint64_t PageBytes() {
  static const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return page;
}

void Advise(std::span<const std::byte> bytes, uint64_t begin, uint64_t end, int advice) {
  if (begin >= end) return;
  madvise(const_cast<std::byte*>(bytes.data()) + begin, end - begin, advice);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  // O_NONBLOCK: a named pipe must not hold the program up; for regular files it means nothing.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    const std::string message = fmt::format("{}: {}", path, std::strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::PermissionDeniedError(message);
  }
  struct stat info{};
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return absl::InvalidArgumentError(fmt::format("{}: not a regular file", path));
  }
  const size_t n_bytes = static_cast<size_t>(info.st_size);
  void* data = nullptr;
  if (n_bytes > 0) {
    data = mmap(nullptr, n_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
      const std::string message = fmt::format("{}: cannot be mapped: {}", path, strerror(errno));
      close(fd);
      return absl::ResourceExhaustedError(message);
    }
  }
  close(fd);
  std::shared_ptr<const MappedFile> file(
      new MappedFile(path, {static_cast<const std::byte*>(data), n_bytes}));
  constexpr std::string_view kLfs = "version https://git-lfs";
  if (n_bytes >= kLfs.size() && std::memcmp(data, kLfs.data(), kLfs.size()) == 0) {
    return absl::InvalidArgumentError(fmt::format(
        "{}: is a Git LFS pointer, not the file itself; run `git lfs pull` in its folder", path));
  }
  return file;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::WillNeed(uint64_t begin, uint64_t end) const {
  Advise(bytes_, begin / PageBytes() * PageBytes(), std::min<uint64_t>(end, bytes_.size()),
         MADV_WILLNEED);
}

void MappedFile::DontNeed(uint64_t begin, uint64_t end) const {
  Advise(bytes_, (begin + PageBytes() - 1) / PageBytes() * PageBytes(),
         std::min<uint64_t>(end, bytes_.size()) / PageBytes() * PageBytes(), MADV_DONTNEED);
}

}  // namespace stagecoach
