#include "cli/doctor/gpu_probes.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string_view>

#include "common/nccl_version.h"
#include "common/proc_file.h"
#include "common/size.h"

namespace stagecoach::doctor {
namespace {

namespace fs = std::filesystem;

constexpr int kCuda12 = 12080;  // oldest installed toolkit that workers build with
constexpr int kCuda13 = 13000;  // version of deploy/cuda-toolkit.sh and of the images
// CUDA version of this build's workers. 0: this build has no GPU kernels; workers of another build
// may run on this machine.
#ifdef STAGECOACH_CUDA_VERSION
constexpr int kBuiltCuda = STAGECOACH_CUDA_VERSION;
#else
constexpr int kBuiltCuda = 0;
#endif

struct CloseLibrary {
  void operator()(void* handle) const { dlclose(handle); }
};

// A library that may be missing.
class Library {
 public:
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      handle_.reset(dlopen(name, RTLD_LAZY | RTLD_LOCAL));
      if (handle_ != nullptr) return;
    }
  }
  bool found() const { return handle_ != nullptr; }
  // Null if the library has no such function.
  template <typename Function>
  Function* Find(const char* name) const {
    return handle_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(handle_.get(), name));
  }

 private:
  std::unique_ptr<void, CloseLibrary> handle_;
};

// 13000 -> "13.0"
std::string CudaVersion(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Counts NVIDIA's graphics and compute devices on the PCI bus, which lists them without a driver
// too.
int NvidiaDevicesOnPci(const std::string& root) {
  int n = 0;
  std::error_code error;
  for (const auto& device : fs::directory_iterator(root + "/sys/bus/pci/devices", error)) {
    const std::string vendor = ReadFirstLine(device.path() / "vendor").value_or("");
    const std::string device_class = ReadFirstLine(device.path() / "class").value_or("");
    if (vendor == "0x10de" && device_class.starts_with("0x03")) ++n;
  }
  return n;
}

struct Gpus {
  std::string driver;
  std::vector<std::string> devices;  // "NVIDIA H100, 80.0 GiB"
};

// Asks NVML, which needs no CUDA context and lists only devices that this process may open.
std::optional<Gpus> AskNvml() {
  struct Memory {
    unsigned long long total, free, used;
  };
  const Library nvml{"libnvidia-ml.so.1"};
  auto* const init = nvml.Find<int()>("nvmlInit_v2");
  auto* const shutdown = nvml.Find<int()>("nvmlShutdown");
  auto* const driver = nvml.Find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
  auto* const count = nvml.Find<int(unsigned*)>("nvmlDeviceGetCount_v2");
  auto* const handle = nvml.Find<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2");
  auto* const name = nvml.Find<int(void*, char*, unsigned)>("nvmlDeviceGetName");
  auto* const memory = nvml.Find<int(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
  if (!init || !shutdown || !driver || !count || !handle || !name || !memory) return std::nullopt;
  if (init() != 0) return std::nullopt;
  Gpus gpus;
  char text[96] = "";
  if (driver(text, sizeof(text)) == 0) gpus.driver = text;
  unsigned n = 0;
  if (count(&n) != 0) n = 0;
  for (unsigned i = 0; i < n; ++i) {
    void* device = nullptr;
    Memory bytes{};
    if (handle(i, &device) != 0 || name(device, text, sizeof(text)) != 0) continue;
    const bool has_memory = memory(device, &bytes) == 0;
    gpus.devices.push_back(has_memory ? fmt::format("{}, {}", text, FormatBytes(bytes.total))
                                      : std::string(text));
  }
  shutdown();
  return gpus;
}

// Equal devices are grouped: "8 x NVIDIA H100, 80.0 GiB".
std::string Devices(const std::vector<std::string>& devices) {
  std::string text;
  for (size_t i = 0; i < devices.size();) {
    size_t end = i + 1;
    while (end < devices.size() && devices[end] == devices[i]) ++end;
    if (!text.empty()) text += "; ";
    text += end - i == 1 ? devices[i] : fmt::format("{} x {}", end - i, devices[i]);
    i = end;
  }
  return text;
}

Line GpuLine(const std::string& root, const std::optional<Gpus>& gpus) {
  Line line{.name = "GPUs", .found = "none; everything runs on the CPU"};
  if (gpus && !gpus->devices.empty()) {
    line.found = Devices(gpus->devices);
    return line;
  }
  const int n_on_pci = NvidiaDevicesOnPci(root);
  if (n_on_pci == 0) return line;
  line.level = Level::kWarning;
  line.found = fmt::format("{} on the PCI bus, but this process can use none", n_on_pci);
  line.advice =
      fs::exists(root + "/proc/driver/nvidia/version")
          ? "the driver is loaded: give the container access to the GPUs (docker --gpus all)"
          : "install the NVIDIA driver; if it is installed, check dmesg";
  return line;
}

Line DriverLine(const std::optional<Gpus>& gpus) {
  Line line{.name = "driver"};
  const Library cuda{"libcuda.so.1"};
  auto* const version = cuda.Find<int(int*)>("cuDriverGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) number = 0;
  line.found = gpus && !gpus->driver.empty() ? gpus->driver : "unknown version";
  if (number == 0) {
    line.level = Level::kWarning;
    line.found += ", libcuda.so.1 cannot be loaded";
    line.advice =
        "in a container, request the compute capability: "
        "NVIDIA_DRIVER_CAPABILITIES=compute,utility";
    return line;
  }
  line.found += fmt::format(", for CUDA up to {}", CudaVersion(number));
  line.advice = DriverAdvice(number, kBuiltCuda);
  if (!line.advice.empty()) line.level = Level::kWarning;
  return line;
}

// cuBLASLt is the only part of the toolkit that workers load at run time; the CUDA runtime is
// linked in. The version is the one that cuBLASLt was built with.
Line CublasLtLine() {
  Line line{.name = "cuBLASLt"};
  constexpr bool kHas12 = kBuiltCuda > 0 && kBuiltCuda < kCuda13;
  constexpr const char* kName = kHas12 ? "libcublasLt.so.12" : "libcublasLt.so.13";
  const Library cublas{kName, kBuiltCuda > 0 ? kName : "libcublasLt.so.12"};
  auto* const version = cublas.Find<size_t()>("cublasLtGetCudartVersion");
  if (version == nullptr) {
    line.level = Level::kWarning;
    line.found = fmt::format("{} not found", kName);
    line.advice = fmt::format(
        "GPU workers need it for GEMMs: install CUDA's libcublas (pip: {}), or add its folder to "
        "LD_LIBRARY_PATH",
        kHas12 ? "nvidia-cublas-cu12" : "nvidia-cublas");
    return line;
  }
  line.found = fmt::format("of CUDA {}", CudaVersion(static_cast<int>(version())));
  return line;
}

Line NcclLine() {
  Line line{.name = "NCCL"};
  const Library nccl{"libnccl.so.2", "libnccl.so"};
  auto* const version = nccl.Find<int(int*)>("ncclGetVersion");
  int number = 0;
  if (version == nullptr || version(&number) != 0) {
    line.level = Level::kWarning;
    line.found = "libnccl.so.2 not found";
    line.advice = fmt::format(
        "GPU stages exchange hidden states through it: install libnccl2 (pip: {}), or add its "
        "folder to LD_LIBRARY_PATH",
        kBuiltCuda > 0 && kBuiltCuda < kCuda13 ? "nvidia-nccl-cu12" : "nvidia-nccl-cu13");
    return line;
  }
  line.found = NcclVersionName(number);
  if (number < kOldestNccl) {
    line.level = Level::kWarning;
    line.advice = fmt::format("NCCL {} or later is needed", NcclVersionName(kOldestNccl));
  }
  return line;
}

}  // namespace

std::string DriverAdvice(int driver, int built) {
  // CUDA's minor-version compatibility: a program built with CUDA 13.x runs on any driver for 13.0
  // or later, so only the major version counts.
  const bool is_for_13 = built == 0 || built >= kCuda13;
  if (driver >= (is_for_13 ? kCuda13 : kCuda12)) return "";
  const std::string of_12 = fmt::format("CUDA {} needs driver 570 or later", CudaVersion(kCuda12));
  const std::string of_13 = fmt::format("CUDA {} needs driver 580 or later", CudaVersion(kCuda13));
  if (built > 0) {
    return fmt::format("this build's workers have CUDA {}: {}", CudaVersion(built),
                       is_for_13 ? of_13 : of_12);
  }
  const std::string pinned = of_13 + "; the images and deploy/cuda-toolkit.sh use this version";
  return driver >= kCuda12 ? pinned : fmt::format("{}; {}", of_12, pinned);
}

std::vector<Line> ProbeGpus(const std::string& root) {
  const std::optional<Gpus> gpus = AskNvml();
  std::vector<Line> lines{GpuLine(root, gpus)};
  // The libraries are needed only if there are GPUs.
  if (gpus && !gpus->devices.empty()) {
    lines.push_back(DriverLine(gpus));
    lines.push_back(CublasLtLine());
    lines.push_back(NcclLine());
  }
  return lines;
}

}  // namespace stagecoach::doctor
