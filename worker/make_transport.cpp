#include "worker/make_transport.h"

#include <fmt/format.h>

#include <cstdlib>

#ifdef STAGECOACH_WITH_CUDA
#include "worker/transport/nccl/nccl_transport.h"
#ifdef STAGECOACH_EMULATED_CUDA
#include "worker/transport/nccl/testing/fake_nccl.h"
#endif
#endif

namespace stagecoach::worker {

absl::Status ApplyTransportFlags(const TransportFlags& flags) {
  // These two are overwritten whatever the environment says, as training frameworks do. Streams
  // that share a hardware queue of the GPU wait for each other: a receive would block the work that
  // its message depends on.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/1);
  // Loading a kernel at its first launch may wait for all work running on the GPU, and a receive
  // runs until its message has arrived.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/1);
  if (!flags.nccl_interface.empty()) {
    setenv("NCCL_SOCKET_IFNAME", flags.nccl_interface.c_str(), /*overwrite=*/1);
  }
  for (const std::string& setting : flags.nccl_settings) {
    const size_t equals = setting.find('=');
    if (!setting.starts_with("NCCL_") || equals == std::string::npos) {
      return absl::InvalidArgumentError(
          fmt::format("--nccl-setting {}: must be NCCL_NAME=VALUE", setting));
    }
    setenv(setting.substr(0, equals).c_str(), setting.c_str() + equals + 1, /*overwrite=*/1);
  }
  return absl::OkStatus();
}

std::unique_ptr<Transport> MakeDeviceTransport(const WorkerFlags& flags, const kernels::Ops& ops,
                                               Transport* host) {
#ifdef STAGECOACH_WITH_CUDA
  const kernels::NativeQueue queue = ops.native_queue();
  if (queue.stream == nullptr || flags.transport.transport == "host") return nullptr;
  return std::make_unique<NcclTransport>(
      NcclTransportOptions{.device = queue.device,
                           .compute = static_cast<cudaStream_t>(queue.stream),
#ifdef STAGECOACH_EMULATED_CUDA
                           .load_api = [] { return FakeNccl(); },
                           .longest_step = std::chrono::seconds(flags.transport.link_timeout_s),
                           .reserved_bytes = 0,
                           .reserved_again_bytes = 0,
#else
                           .load_api =
                               [library = flags.transport.nccl_library] {
                                 return LoadNccl(library);
                               },
                           .longest_step = std::chrono::seconds(flags.transport.link_timeout_s),
#endif
                           .disturbance_seed = flags.disturbance_seed,
                           .poison = flags.disturbance_seed != 0},
      host);
#else
  static_cast<void>(flags), static_cast<void>(ops), static_cast<void>(host);
  return nullptr;
#endif
}

}  // namespace stagecoach::worker
