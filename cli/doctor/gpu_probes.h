// Probes the GPUs and their libraries; each check gives one line. The libraries are loaded with
// dlopen, so this program neither needs them to build nor to run.
#pragma once

#include <string>

#include "cli/doctor/doctor.h"

namespace stagecoach::doctor {

// Tests set `root` to a folder that replaces "/".
std::vector<Line> ProbeGpus(const std::string& root);

// Advice if a driver that supports CUDA up to `driver` is too old for workers built with CUDA
// `built`; empty: the driver is new enough. Both use CUDA's numbering (13000 is 13.0). `built` is 0
// if the workers come from another build.
std::string DriverAdvice(int driver, int built);

}  // namespace stagecoach::doctor
