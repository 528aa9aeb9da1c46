// Settings that every gRPC server and client of the house shares, set on purpose in one place.
#pragma once

#include <memory>
#include <string>

namespace grpc {
class Channel;
class ChannelArguments;
class ServerBuilder;
}  // namespace grpc

namespace stagecoach {

// Requests from outside: a 128k-token prompt as ids is 0.5 MB, a long chat some MB.
inline constexpr int kMaxClientMessageBytes = 16 << 20;
// Between router and workers: a hidden-states frame is max_batched_tokens x hidden_size x 4 bytes.
inline constexpr int kMaxInternalMessageBytes = 1 << 30;

// Receive limit, keepalive that tolerates pinging clients, and the reflection service.
// Call before the builder's BuildAndStart.
void ApplyServerDefaults(grpc::ServerBuilder& builder, int max_message_bytes);

// Pings clients, so that one whose host is gone without a word is lost within 20 s as well when
// nothing is on its way to it. Likewise.
void NoticeLostClients(grpc::ServerBuilder& builder);

// Arguments of a channel with the same limits and a keepalive that notices a dead host within 20 s.
// The channel never goes through a proxy.
grpc::ChannelArguments ClientDefaults(int max_message_bytes);

// A channel with those, to a public port.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int max_message_bytes);

}  // namespace stagecoach
