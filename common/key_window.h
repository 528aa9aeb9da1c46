// Which keys a position attends to, shared by router, stages and kernels.
#pragma once

#include <cstdint>
#include <limits>

namespace stagecoach {

// A position sees keys up to its own.
struct KeyWindow {
  int32_t size = 0;       // tokens; 0: all keys
  bool is_chunk = false;  // the keys of its chunk of `size` positions; else the last `size` keys

  constexpr KeyWindow() = default;
  // A plain number is a sliding window. NOLINTNEXTLINE(google-explicit-constructor)
  constexpr KeyWindow(int32_t n_tokens, bool by_chunk = false)
      : size(n_tokens), is_chunk(by_chunk) {}
  constexpr bool operator==(const KeyWindow&) const = default;

  // The first key that a position sees. It never decreases from one position to the next.
  constexpr int32_t First(int32_t position) const {
    if (size == 0) return 0;
    if (is_chunk) return position - position % size;
    return position < size ? 0 : position - size + 1;
  }
  constexpr bool Sees(int32_t position, int32_t key) const {
    return key <= position && key >= First(position);
  }
  // The first position after `key` that does not see it.
  constexpr int64_t EndOf(int32_t key) const {
    if (size == 0) return std::numeric_limits<int64_t>::max();
    return int64_t{key} + size - (is_chunk ? key % size : 0);
  }
};

}  // namespace stagecoach
