// Threads of this process that the kernel keeps from running.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace stagecoach {

struct StoppedThread {
  int id = 0;
  std::string name;
  uint64_t cpu_ticks = 0;  // CPU time that it has used; unchanged: it has not run
};

// The threads that are stopped by a signal or a debugger, or wait in the kernel without a way to
// interrupt them (a hung file system). A wait for a disk looks the same for a moment: compare two
// calls. Reads /proc: about 10 us per thread. Empty where /proc cannot be read.
std::vector<StoppedThread> StoppedThreads();

}  // namespace stagecoach
