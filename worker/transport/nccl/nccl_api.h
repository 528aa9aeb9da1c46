// The few functions of NCCL that stages use, from a library that is loaded when stages first meet:
// a worker on a CPU, or alone, needs none. Declared here by NCCL's ABI, which is the same from 2.18
// on, so that nothing of NCCL is needed to build; tests put their own functions in. What a library
// has to be: common/nccl_version.h.
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

struct NcclCommunicator;  // NCCL's own
using NcclComm = NcclCommunicator*;

// ncclConfig_t as of 2.18. Later libraries take it: it says how long it is.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;                // calls return at once; comm_get_async_error says how they went
  int cga_cluster_size = INT_MIN;  // undefined: NCCL's default
  int min_ctas = 1;                // one block: what waits takes one multiprocessor
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

// OK, or UNAVAILABLE where the release is too old for links. name: of the library, for the message.
absl::Status CheckNcclVersion(const std::string& name, int version);

// path: of the library; empty: libnccl.so.2 where the system finds it. Once a process; never
// unloaded. UNAVAILABLE says what is missing.
absl::StatusOr<const NcclApi*> LoadNccl(const std::string& path);

}  // namespace stagecoach::worker
