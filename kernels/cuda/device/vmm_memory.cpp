#include "kernels/cuda/device/vmm_memory.h"

#include <cuda.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/size.h"
#include "common/status.h"
#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::kernels::cuda {
namespace {

// The driver's functions. Looked up, so that the program starts on a machine without a driver.
struct Driver {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemCreate) create = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemExportToShareableHandle) export_handle = nullptr;
  decltype(&cuMemImportFromShareableHandle) import_handle = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_address = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuGetErrorString) error_string = nullptr;
  bool is_complete = true;

  template <typename Function>
  void Find(const char* name, Function* function) {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result;
    constexpr unsigned kVersion = 12000;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
    is_complete &= error == cudaSuccess && result == cudaDriverEntryPointSuccess;
    *function = reinterpret_cast<Function>(found);
  }

  Driver() {
    Find("cuMemGetAllocationGranularity", &granularity);
    Find("cuMemCreate", &create);
    Find("cuMemRelease", &release);
    Find("cuMemExportToShareableHandle", &export_handle);
    Find("cuMemImportFromShareableHandle", &import_handle);
    Find("cuMemAddressReserve", &reserve);
    Find("cuMemAddressFree", &free_address);
    Find("cuMemMap", &map);
    Find("cuMemUnmap", &unmap);
    Find("cuMemSetAccess", &set_access);
    Find("cuGetErrorString", &error_string);
  }
};

const Driver& TheDriver() {
  static const Driver driver;
  return driver;
}

absl::Status ToStatus(CUresult result, const char* what, size_t bytes) {
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  const char* text = "?";
  TheDriver().error_string(result, &text);
  const std::string message = fmt::format("CUDA: cannot {} {}: {}", what, FormatBytes(bytes), text);
  return result == CUDA_ERROR_OUT_OF_MEMORY ? absl::ResourceExhaustedError(message)
                                            : absl::InternalError(message);
}

CUmemLocation Location(int32_t device) {
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  return location;
}

CUmemAllocationProp Properties(int32_t device) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = Location(device);
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

absl::StatusOr<size_t> RoundedUp(int32_t device, size_t bytes) {
  const Driver& driver = TheDriver();
  if (!driver.is_complete) {
    return absl::UnimplementedError("the GPU's driver has no memory that outlives a process");
  }
  const CUmemAllocationProp properties = Properties(device);
  size_t unit = 0;
  SC_RETURN_IF_ERROR(ToStatus(
      driver.granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED), "size", bytes));
  return (std::max<size_t>(bytes, 1) + unit - 1) / unit * unit;
}

// Physical memory. The mappings and descriptors made from a handle keep the memory.
class Handle {
 public:
  explicit Handle(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { TheDriver().release(handle_); }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  const CUmemGenericAllocationHandle handle_;
};

absl::StatusOr<Buffer> Map(int32_t device, const Handle& handle, size_t mapped, size_t bytes) {
  const Driver& driver = TheDriver();
  CUdeviceptr address = 0;
  SC_RETURN_IF_ERROR(ToStatus(driver.reserve(&address, mapped, 0, 0, 0), "reserve", bytes));
  CUmemAccessDesc access{};
  access.location = Location(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  const auto unmap = [device, mapped](void* memory) {
    const auto at = reinterpret_cast<CUdeviceptr>(memory);
    cudaSetDevice(device);
    cudaDeviceSynchronize();
    TheDriver().unmap(at, mapped);
    TheDriver().free_address(at, mapped);
  };
  if (const CUresult result = driver.map(address, mapped, 0, handle.get(), 0); result != 0) {
    driver.free_address(address, mapped);
    return ToStatus(result, "map", bytes);
  }
  std::shared_ptr<void> memory(reinterpret_cast<void*>(address), unmap);
  SC_RETURN_IF_ERROR(ToStatus(driver.set_access(address, mapped, &access, 1), "map", bytes));
  return Buffer{std::move(memory), bytes};
}

}  // namespace

absl::StatusOr<SharedBuffer> AllocateVmm(int32_t device, size_t bytes) {
  SC_ASSIGN_OR_RETURN(const size_t rounded, RoundedUp(device, bytes));
  const Driver& driver = TheDriver();
  const CUmemAllocationProp properties = Properties(device);
  CUmemGenericAllocationHandle created = 0;
  SC_RETURN_IF_ERROR(ToStatus(driver.create(&created, rounded, &properties, 0), "allocate", bytes));
  const Handle handle(created);
  int fd = -1;
  SC_RETURN_IF_ERROR(
      ToStatus(driver.export_handle(&fd, handle.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               "export", bytes));
  SharedBuffer shared{.buffer = {}, .fd = UniqueFd(fd)};
  SC_ASSIGN_OR_RETURN(shared.buffer, Map(device, handle, rounded, bytes));
  return shared;
}

absl::StatusOr<Buffer> MapVmm(int32_t device, int fd, size_t bytes) {
  SC_ASSIGN_OR_RETURN(const size_t rounded, RoundedUp(device, bytes));
  CUmemGenericAllocationHandle imported = 0;
  SC_RETURN_IF_ERROR(ToStatus(
      TheDriver().import_handle(&imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                                CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
      "import", bytes));
  const Handle handle(imported);
  return Map(device, handle, rounded, bytes);
}

}  // namespace stagecoach::kernels::cuda
