#include "tests/bench/power_meter.h"

#include <dlfcn.h>

#include "common/check.h"
#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach {
namespace {

constexpr int kMultiprocessorClock = 1;  // NVML_CLOCK_SM

template <typename Function>
Function* Find(void* library, const char* name) {
  auto* const found = reinterpret_cast<Function*>(dlsym(library, name));
  SC_CHECK(found != nullptr);
  return found;
}

}  // namespace

PowerMeter::PowerMeter(int device) : nvml_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
  SC_CHECK(nvml_ != nullptr);
  // CUDA and NVML may number the devices differently, so look the device up by its PCI bus id.
  char bus_id[32];
  SC_CHECK(cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), device) == cudaSuccess);
  SC_CHECK(Find<int()>(nvml_, "nvmlInit_v2")() == 0);
  SC_CHECK(Find<int(const char*, void**)>(nvml_, "nvmlDeviceGetHandleByPciBusId_v2")(
               bus_id, &device_) == 0);
}

double PowerMeter::Joules() const {
  unsigned long long mj = 0;
  SC_CHECK(Find<int(void*, unsigned long long*)>(nvml_, "nvmlDeviceGetTotalEnergyConsumption")(
               device_, &mj) == 0);
  return static_cast<double>(mj) * 1e-3;
}

double PowerMeter::ClockGhz() const {
  unsigned mhz = 0;
  SC_CHECK(Find<int(void*, int, unsigned*)>(nvml_, "nvmlDeviceGetClockInfo")(
               device_, kMultiprocessorClock, &mhz) == 0);
  return mhz * 1e-3;
}

}  // namespace stagecoach
