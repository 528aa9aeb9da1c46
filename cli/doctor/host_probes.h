// Probes the machine; each check gives one line. Tests set `root` to a folder that replaces "/".
#pragma once

#include <string>

#include "cli/doctor/doctor.h"

namespace stagecoach::doctor {

Line ProbeCpu(const std::string& root);
Line ProbeCores(const std::string& root);
Line ProbeMemory(const std::string& root);
Line ProbeTransparentHugePages(const std::string& root);
Line ProbeReservedHugePages(const std::string& root);
Line ProbeSharedMemory(const std::string& root);
Line ProbeOpenFiles();
Line ProbeNumaNodes(const std::string& root);
Line ProbePrograms(const std::string& program_dir);
Line ProbeLoopback();

}  // namespace stagecoach::doctor
