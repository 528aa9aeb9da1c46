#include "common/rpc/server.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>

#include <mutex>

#include "common/rpc/grpc_log.h"
#include "common/rpc/unreadable.h"

namespace stagecoach {
namespace {

constexpr int kKeepaliveMs = 10'000;
constexpr int kFirstReconnectMs = 20, kLastReconnectMs = 200;
constexpr int kReconnectTimeoutMs = 5'000;  // of one attempt

}  // namespace

void ApplyServerDefaults(grpc::ServerBuilder& builder, int max_message_bytes) {
  TameProtobufLog();
  static std::once_flag reflection;
  std::call_once(reflection, [] { grpc::reflection::InitProtoReflectionServerBuilderPlugin(); });
  QuietGrpcLog();
  builder.SetMaxReceiveMessageSize(max_message_bytes);
  // Without these, gRPC closes the connection of a client that pings while idle ("too_many_pings").
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kKeepaliveMs / 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // With SO_REUSEPORT, two servers on one port would share its connections. Report an error
  // instead.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

void NoticeLostClients(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);  // no limit
}

grpc::ChannelArguments ClientDefaults(int max_message_bytes) {
  TameProtobufLog();
  QuietGrpcLog();
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(max_message_bytes);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // One process may hold several channels to one worker. On a shared connection they would block
  // each other.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // A worker that is replaced is found soon, while all streams wait; gRPC's own pauses grow to two
  // minutes.
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstReconnectMs);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kReconnectTimeoutMs);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLastReconnectMs);
  return args;
}

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address, int max_message_bytes) {
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   ClientDefaults(max_message_bytes));
}

}  // namespace stagecoach
