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

// Bytes that remain resident after each of several threads has called `use`, which frees what it
// takes. The threads live at the same time, so malloc gives each an arena of its own; the calls
// follow one another.
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
  return after - before;
}

}  // namespace stagecoach
