// Handling of gRPC's own log lines, which concern sockets and gRPC internals.
#pragma once

namespace stagecoach {

// Sends them to our log at debug level. If GRPC_VERBOSITY or GRPC_TRACE is set, gRPC prints them
// itself instead. The servers and channels of common/rpc call this function.
void QuietGrpcLog();

}  // namespace stagecoach
