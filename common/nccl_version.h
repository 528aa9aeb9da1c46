// Which NCCL releases the stages can use. Versions use NCCL's own encoding: 22403 is 2.24.3.
#pragma once

#include <string>

namespace stagecoach {

// Before 2.24.3, ncclSend and ncclRecv outside a group on a non-blocking communicator return
// success before the operation is queued. An event recorded after them then proves nothing.
inline constexpr int kOldestNccl = 22403;

// Returns "2.28.9", for example. Releases before 2.9 use another encoding: 2804 is 2.8.4.
std::string NcclVersionName(int version);

}  // namespace stagecoach
