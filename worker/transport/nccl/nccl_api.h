// The few NCCL functions that stages use, from a library loaded when stages first connect: a worker
// on a CPU, or alone, needs no NCCL. They are declared here by NCCL's ABI, which is stable from
// 2.18 on, so that building needs no NCCL headers. Tests provide their own functions. Supported
// releases: common/nccl_version.h.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/cuda/device/cuda_api.h"

namespace stagecoach::worker {

struct NcclUniqueId {
  char bytes[128];
};

enum NcclResult : int { kNcclSuccess = 0, kNcclInternalError = 3, kNcclInProgress = 7 };

struct NcclCommunicator;  // defined by NCCL
using NcclComm = NcclCommunicator*;

// ncclConfig_t as of 2.18. Later libraries accept it, because it contains its size.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;                // calls return at once; comm_get_async_error gives the result
  int cga_cluster_size = INT_MIN;  // undefined: NCCL's default
  int min_ctas = 1;                // one block: a waiting message occupies one SM
  int max_ctas = 1;
  const char* net_name = nullptr;
  int split_share = 0;
};
static_assert(sizeof(NcclConfig) == 48);

struct NcclApi {
  NcclResult (*get_version)(int* version);  // 22809: 2.28.9
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init_rank_config)(NcclComm* comm, int n_ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config);
  NcclResult (*comm_get_async_error)(NcclComm comm, NcclResult* result);
  NcclResult (*comm_abort)(NcclComm comm);
  NcclResult (*send)(const void* data, size_t n, int dtype, int peer, NcclComm comm,
                     cudaStream_t stream);
  NcclResult (*recv)(void* data, size_t n, int dtype, int peer, NcclComm comm, cudaStream_t stream);
  const char* (*get_error_string)(NcclResult result);
  const char* (*get_last_error)(NcclComm comm);
};
inline constexpr int kNcclInt8 = 0;  // ncclDataType_t

// OK, or UNAVAILABLE if the release is too old for links. name: the library's name, for the
// message.
absl::Status CheckNcclVersion(const std::string& name, int version);

// path: of the library; empty: the system's libnccl.so.2. Loads once per process and never unloads.
// UNAVAILABLE says what is missing.
absl::StatusOr<const NcclApi*> LoadNccl(const std::string& path);

}  // namespace stagecoach::worker
