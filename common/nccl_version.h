// Which releases of NCCL stages can use. NCCL's own number of a release: 22403 is 2.24.3.
#pragma once

#include <string>

namespace stagecoach {

// Before 2.24.3, ncclSend and ncclRecv outside a group on a non-blocking communicator return
// success before anything is queued, so that an event recorded behind them says nothing.
inline constexpr int kOldestNccl = 22403;

// "2.28.9". Releases before 2.9 have numbers of another form: 2804 is 2.8.4.
std::string NcclVersionName(int version);

}  // namespace stagecoach
