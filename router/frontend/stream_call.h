// gRPC's streams that are kept: the request runs by itself, and calls only read what it says.
#pragma once

#include "stagecoach/v1/inference.grpc.pb.h"

namespace stagecoach::router {

class Frontend;

// Whose streams they are in the store.
inline constexpr char kGrpcOwner[] = "grpc";

using GenerateReactor = grpc::ServerWriteReactor<v1::GenerateResponse>;

// Starts a copy of `request`, and reads its stream from the start.
GenerateReactor* BeginKept(Frontend* frontend, grpc::CallbackServerContext* context,
                           const v1::GenerateRequest& request);
GenerateReactor* BeginKept(Frontend* frontend, grpc::CallbackServerContext* context,
                           const v1::ChatRequest& request);

GenerateReactor* ResumeKept(Frontend* frontend, grpc::CallbackServerContext* context,
                            const v1::ResumeRequest& request);

}  // namespace stagecoach::router
