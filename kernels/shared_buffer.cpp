#include "kernels/shared_buffer.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/size.h"
#include "common/status.h"

namespace stagecoach::kernels {
namespace {

absl::StatusOr<Buffer> Map(int fd, size_t bytes) {
  const size_t mapped = std::max<size_t>(bytes, 1);
  void* const data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        fmt::format("cannot map {} of shared memory: {}", FormatBytes(bytes), strerror(errno)));
  }
  return Buffer{std::shared_ptr<void>(data, [mapped](void* memory) { munmap(memory, mapped); }),
                bytes};
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

}  // namespace stagecoach::kernels
