#include "common/mapped_pages.h"

#include <sys/mman.h>

namespace stagecoach {

void Unmap::operator()(void* pages) const { munmap(pages, bytes); }

MappedPages MapPages(size_t bytes) {
  void* pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, /*offset=*/0);
  return {pages == MAP_FAILED ? nullptr : pages, Unmap{bytes}};
}

}  // namespace stagecoach
