// gRPC's own log lines, which are about sockets and its insides.
#pragma once

namespace stagecoach {

// They go to our log at the level debug, unless the environment asks for them (GRPC_VERBOSITY or
// GRPC_TRACE): then gRPC prints them itself. Servers and channels of common/rpc call it.
void QuietGrpcLog();

}  // namespace stagecoach
