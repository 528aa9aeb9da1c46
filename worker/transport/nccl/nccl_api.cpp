#include "worker/transport/nccl/nccl_api.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <optional>

#include "common/mutex.h"
#include "common/nccl_version.h"

namespace stagecoach::worker {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

absl::StatusOr<const NcclApi*> Load(const std::string& path) {
  // Neighbours only send and receive, so NVLink multicast (NVLS) would be set up for nothing.
  setenv("NCCL_NVLS_ENABLE", "0", /*overwrite=*/0);
  const char* const name = path.empty() ? "libnccl.so.2" : path.c_str();
  void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return absl::UnavailableError(
        fmt::format("NCCL cannot be loaded ({}): install it, or say where it is with "
                    "--nccl-library",
                    dlerror()));
  }
  static NcclApi api;
  if (!Find(library, "ncclGetVersion", &api.get_version) ||
      !Find(library, "ncclGetUniqueId", &api.get_unique_id) ||
      !Find(library, "ncclCommInitRankConfig", &api.comm_init_rank_config) ||
      !Find(library, "ncclCommGetAsyncError", &api.comm_get_async_error) ||
      !Find(library, "ncclCommAbort", &api.comm_abort) || !Find(library, "ncclSend", &api.send) ||
      !Find(library, "ncclRecv", &api.recv) ||
      !Find(library, "ncclGetErrorString", &api.get_error_string) ||
      !Find(library, "ncclGetLastError", &api.get_last_error)) {
    return absl::UnavailableError(fmt::format("{} lacks functions of NCCL ({})", name, dlerror()));
  }
  int version = 0;
  api.get_version(&version);
  if (absl::Status status = CheckNcclVersion(name, version); !status.ok()) return status;
  return &api;
}

}  // namespace

absl::Status CheckNcclVersion(const std::string& name, int version) {
  if (version >= kOldestNccl) return absl::OkStatus();
  return absl::UnavailableError(fmt::format("{} is NCCL {}; {} or later is needed", name,
                                            NcclVersionName(version),
                                            NcclVersionName(kOldestNccl)));
}

absl::StatusOr<const NcclApi*> LoadNccl(const std::string& path) {
  static Mutex mutex;
  static std::optional<absl::StatusOr<const NcclApi*>> loaded;
  const MutexLock lock(mutex);
  if (!loaded) loaded = Load(path);
  return *loaded;
}

}  // namespace stagecoach::worker
