// Names the program that listens on a port of this machine.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach {

// "process 1234 (nginx)". Empty: nobody listens, or the process is another user's, which only root
// can see. `root` replaces "/" in tests.
std::string PortHolder(uint16_t port, const std::string& root = "");

}  // namespace stagecoach
