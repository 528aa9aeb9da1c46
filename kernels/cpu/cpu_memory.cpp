#include "kernels/cpu/cpu_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "common/mapped_pages.h"
#include "common/status.h"

namespace stagecoach::kernels {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
// From this size on, memory is a mapping of its own.
constexpr size_t kMapped = size_t{64} << 10;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* MapHuge(size_t bytes) {
  // Map one huge page more than needed, then unmap the ends outside the alignment.
  const size_t mapped = bytes + kHugePage;
  void* raw = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(raw);
  const size_t head =
      RoundUp(reinterpret_cast<size_t>(raw), kHugePage) - reinterpret_cast<size_t>(raw);
  if (head > 0) munmap(start, head);
  if (head < kHugePage) munmap(start + head + bytes, kHugePage - head);
  madvise(start + head, bytes, MADV_HUGEPAGE);  // only a hint: if it fails, the pages are small
  return start + head;
}

}  // namespace

absl::StatusOr<Buffer> AllocateCpu(size_t bytes) {
  const auto exhausted = [bytes] {
    return absl::ResourceExhaustedError(
        fmt::format("cannot allocate {} bytes of memory; use a smaller model, fewer layers a stage "
                    "or less KV cache",
                    bytes));
  };
  if (bytes > SIZE_MAX / 2) return exhausted();
  if (bytes >= kHugePage) {
    const size_t rounded = RoundUp(bytes, kHugePage);
    void* data = MapHuge(rounded);
    if (data == nullptr) return exhausted();
    return Buffer{std::shared_ptr<void>(data, [rounded](void* p) { munmap(p, rounded); }), bytes};
  }
  if (bytes >= kMapped) {
    MappedPages pages = MapPages(bytes);
    if (pages == nullptr) return exhausted();
    return Buffer{std::shared_ptr<void>(std::move(pages)), bytes};
  }
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), 64);
  void* data = std::aligned_alloc(64, rounded);
  if (data == nullptr) return exhausted();
  std::memset(data, 0, rounded);
  return Buffer{std::shared_ptr<void>(data, std::free), bytes};
}

absl::StatusOr<float*> Scratch::Floats(size_t n) {
  const size_t bytes = n * sizeof(float);
  if (bytes > buffer_.bytes) {
    buffer_ = Buffer();
    SC_ASSIGN_OR_RETURN(buffer_, AllocateCpu(bytes));
  }
  return buffer_.As<float>();
}

}  // namespace stagecoach::kernels
