// Settings shared by all gRPC servers and clients of this project.
#pragma once

#include <memory>
#include <string>

namespace grpc {
class Channel;
class ChannelArguments;
class ServerBuilder;
}  // namespace grpc

namespace stagecoach {

// Requests from outside: a 128k-token prompt as ids is 0.5 MB, a long chat a few MB.
inline constexpr int kMaxClientMessageBytes = 16 << 20;
// Between router and workers: a hidden-states frame has max_batched_tokens x hidden_size x 4 bytes.
inline constexpr int kMaxInternalMessageBytes = 1 << 30;

// Sets the receive limit, a keepalive policy that tolerates pings from clients, and the reflection
// service. Call it before the builder's BuildAndStart.
void ApplyServerDefaults(grpc::ServerBuilder& builder, int max_message_bytes);

// Pings clients, so that the server detects a client on a dead host within 20 s even if it sends
// the client nothing. Call it before the builder's BuildAndStart.
void NoticeLostClients(grpc::ServerBuilder& builder);

// Arguments of a channel with the same limits and with a keepalive that detects a dead host within
// 20 s. The channel never uses a proxy.
grpc::ChannelArguments ClientDefaults(int max_message_bytes);

// Makes a channel with these arguments to a public port.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int max_message_bytes);

}  // namespace stagecoach
