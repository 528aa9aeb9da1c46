#include "kernels/shared_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "common/size.h"
#include "common/status.h"

namespace stagecoach::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

// Begins at the border of a huge page, as its pages may become huge.
absl::StatusOr<Buffer> Map(int fd, size_t bytes) {
  const size_t reserved = bytes + kHugePage;
  void* const area = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area != MAP_FAILED) {
    const auto start = (reinterpret_cast<uintptr_t>(area) + kHugePage - 1) & ~(kHugePage - 1);
    void* const data = mmap(reinterpret_cast<void*>(start), std::max<size_t>(bytes, 1),
                            PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
    if (data != MAP_FAILED) {
      return Buffer{
          std::shared_ptr<void>(data, [area, reserved](void*) { munmap(area, reserved); }), bytes};
    }
    munmap(area, reserved);
  }
  return absl::ResourceExhaustedError(
      fmt::format("cannot map {} of shared memory: {}", FormatBytes(bytes), strerror(errno)));
}

}  // namespace

absl::StatusOr<SharedBuffer> AllocateSharedHost(size_t bytes) {
  UniqueFd fd(memfd_create("stagecoach", MFD_CLOEXEC));
  if (!fd.valid() || ftruncate(fd.get(), static_cast<off_t>(std::max<size_t>(bytes, 1))) != 0) {
    return absl::ResourceExhaustedError(
        fmt::format("no {} of shared memory: {}", FormatBytes(bytes), strerror(errno)));
  }
  SC_ASSIGN_OR_RETURN(Buffer buffer, Map(fd.get(), bytes));
  return SharedBuffer{std::move(buffer), std::move(fd)};
}

absl::StatusOr<Buffer> MapSharedHost(int fd, size_t bytes) {
  struct stat file{};
  if (fstat(fd, &file) != 0 || static_cast<size_t>(file.st_size) < bytes) {
    return absl::InvalidArgumentError(
        fmt::format("shared memory has {} bytes instead of {}", file.st_size, bytes));
  }
  return Map(fd, bytes);
}

void UseHugePages(const Buffer& memory) {
#ifndef MADV_COLLAPSE
  constexpr int MADV_COLLAPSE = 25;  // C libraries before 2.37 do not know it
#endif
  madvise(memory.data.get(), memory.bytes / kHugePage * kHugePage, MADV_COLLAPSE);
}

}  // namespace stagecoach::kernels
