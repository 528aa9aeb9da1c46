// One line a question about GPUs and their libraries, which are looked for with dlopen: nothing of
// them is needed to build or run this program.
#pragma once

#include <string>

#include "cli/doctor/doctor.h"

namespace stagecoach::doctor {

// `root` stands in for "/" in tests.
std::vector<Line> ProbeGpus(const std::string& root);

// What a driver for CUDA up to `driver` lacks for workers that were built with `built`, as CUDA's
// own numbers go (13000: 13.0) and 0 for other builds' workers; empty: nothing.
std::string DriverAdvice(int driver, int built);

}  // namespace stagecoach::doctor
