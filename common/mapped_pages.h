// Memory that the OS backs page by page, and takes back.
#pragma once

#include <cstddef>
#include <memory>

namespace stagecoach {

struct Unmap {
  size_t bytes = 0;
  void operator()(void* pages) const;
};
using MappedPages = std::unique_ptr<void, Unmap>;

// Zeroed. A page is backed by memory from its first write until the end, when the OS takes back all
// of them. malloc would keep them: large blocks of an epoch would stay in the arena of the thread
// that took them, and the thread that begins the next epoch has another arena. Null: there is not
// so much memory.
MappedPages MapPages(size_t bytes);

}  // namespace stagecoach
