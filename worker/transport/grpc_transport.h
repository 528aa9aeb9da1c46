// Connects stages in separate processes over StageLink: one stream and one connection per channel.
#pragma once

#include <grpcpp/grpcpp.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "common/closable_queue.h"
#include "common/mutex.h"
#include "common/rpc/internal_access.h"
#include "worker/transport/grpc_link.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

struct GrpcTransportOptions {
  std::chrono::milliseconds join_timeout{30'000};
  size_t queue_frames = 8;  // on each side of each channel
  int max_message_bytes = 1 << 30;
  InternalAccess access;  // for the neighbours
};

// Register service() with the worker's server. Shut down in this order: Shutdown(), the server's
// Shutdown, then this object's destructor.
class GrpcTransport final : public Transport {
 public:
  explicit GrpcTransport(const GrpcTransportOptions& options = {});
  ~GrpcTransport() override;

  grpc::Service* service();

  absl::Status Join(const Neighbours& neighbours) override;
  absl::Status Send(Channel channel, uint64_t step, std::string payload) override;
  absl::StatusOr<Message> Receive(Channel channel) override;
  ChannelCounters Counters(Channel channel) const override;
  void Close(absl::Status reason) override;

  // Closes for good: streams that wait for a Join are rejected, and later Joins fail.
  void Shutdown();

 private:
  class Service;
  struct Inbound {
    explicit Inbound(size_t queue_frames) : queue(queue_frames) {}
    ClosableQueue<Message> queue;
    grpc::ServerContext* context = nullptr;  // of the stream that fills the queue
  };

  // Serves one incoming stream from its first frame to its end.
  grpc::Status Serve(Channel channel, grpc::ServerContext* context,
                     grpc::ServerReader<v1::Frame>* reader);
  // Waits until this stage has joined the hello's epoch, then attaches the stream to the channel.
  // Returns the generation.
  absl::StatusOr<uint64_t> Attach(Channel channel, const v1::LinkHello& hello,
                                  grpc::ServerContext* context);
  void Detach(Channel channel);
  // Ends the epoch if its generation is still `generation`.
  void Lost(uint64_t generation, absl::Status reason);
  void CloseLocked(absl::Status reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The stage that sends on this channel to this stage. -1: none.
  int32_t SenderLocked(Channel channel) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What Join still waits for; empty: nothing.
  std::string MissingLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::array<std::shared_ptr<GrpcLink>, kChannels> MakeLinks(const Neighbours& place,
                                                             uint64_t generation);

  const GrpcTransportOptions options_;
  const std::unique_ptr<Service> service_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::array<std::unique_ptr<Inbound>, kChannels> inbound_;  // pointers never change
  std::array<std::shared_ptr<GrpcLink>, kChannels> outbound_ ABSL_GUARDED_BY(mutex_);
  std::array<ChannelCounters, kChannels> counters_ ABSL_GUARDED_BY(mutex_);
  Neighbours place_ ABSL_GUARDED_BY(mutex_);
  uint64_t generation_ ABSL_GUARDED_BY(mutex_) = 0;  // number of Joins
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);      // OK while an epoch is open
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::worker
