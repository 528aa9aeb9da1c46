// One line a question about GPUs and their libraries, which are looked for with dlopen: nothing of
// them is needed to build or run this program.
#pragma once

#include <string>

#include "deploy/doctor/doctor.h"

namespace stagecoach::doctor {

// `root` stands in for "/" in tests.
std::vector<Line> ProbeGpus(const std::string& root);

}  // namespace stagecoach::doctor
