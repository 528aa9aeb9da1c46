// For tests: how much memory stays with the process after threads have freed all that they took.
#pragma once

#include <unistd.h>

#include <barrier>
#include <cstdint>
#include <fstream>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "common/mutex.h"

namespace stagecoach {

// Resident memory of this process that no file backs.
inline int64_t ResidentBytes() {
  int64_t size = 0, resident = 0, shared = 0;
  std::ifstream("/proc/self/statm") >> size >> resident >> shared;
  return (resident - shared) * sysconf(_SC_PAGESIZE);
}

// Whether a sanitizer replaces malloc. It keeps freed memory, and it keeps memory of its own beside
// each page in use (thread sanitizer: four times as much), so residency shows nothing about us.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kHasSanitizer = true;
#else
inline constexpr bool kHasSanitizer = false;
#endif

// Bytes that remain resident after each of several threads has called `use`, which frees what it
// takes. The threads live at the same time, so malloc gives each an arena of its own; the calls
// follow one another. 0 with a sanitizer, where the calls only run.
inline int64_t LeftBehind(const std::function<void()>& use) {
  constexpr int kThreads = 8;
  std::barrier live(kThreads + 1), begin(kThreads + 1), done(kThreads + 1), end(kThreads + 1);
  Mutex one_at_a_time;
  std::vector<std::jthread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto takes_the_arena = std::make_unique<char>();
      live.arrive_and_wait();
      begin.arrive_and_wait();
      {
        const MutexLock lock(one_at_a_time);
        use();
      }
      done.arrive_and_wait();
      end.arrive_and_wait();
    });
  }
  live.arrive_and_wait();
  const int64_t before = ResidentBytes();
  begin.arrive_and_wait();
  done.arrive_and_wait();
  const int64_t after = ResidentBytes();
  end.arrive_and_wait();
  return kHasSanitizer ? 0 : after - before;
}

}  // namespace stagecoach
