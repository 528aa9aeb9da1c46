// One channel to one peer: a client stream of StageLink with a bounded queue in front of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/mutex.h"
#include "stagecoach/v1/stage.grpc.pb.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

// "metadata", "hidden", "tokens"
const char* ChannelName(Channel channel);

// The server adds this to its initial metadata when it accepts the stream, so that the sender knows
// that its hello was accepted.
inline constexpr char kLinkAcceptedKey[] = "stagecoach-link";
inline constexpr char kLinkAcceptedValue[] = "accepted";

// A separate thread drives the stream, so that the death of the peer is detected even while nothing
// is sent.
class GrpcLink {
 public:
  struct Target {
    Channel channel = Channel::kMetadata;
    std::string address;
    int32_t peer_stage = 0;
    int32_t from_stage = 0;
    uint64_t epoch = 0;
  };
  // Called from the link's thread while it holds no lock. on_lost is called at most once.
  struct Events {
    std::function<void()> on_accepted;
    std::function<void(absl::Status)> on_lost;
  };

  // `channel`: to the target's address, used by this link only.
  GrpcLink(Target target, std::shared_ptr<grpc::Channel> channel, size_t queue_frames,
           Events events);
  ~GrpcLink();  // cancels all work; must not run on the link's own thread
  GrpcLink(const GrpcLink&) = delete;
  GrpcLink& operator=(const GrpcLink&) = delete;

  // Blocks while the queue is full. After the peer is lost, returns UNAVAILABLE, which names it.
  absl::Status Send(uint64_t step, std::string payload);
  // Drops the queued messages. Blocked and later senders get `reason`.
  void Close(absl::Status reason);

  bool accepted() const;
  // For example "stage 1 at 10.0.0.2:9100".
  std::string PeerName() const;

 private:
  enum Event : intptr_t { kStarted = 1, kInitialMetadata, kWritten, kFinished };

  void Run();
  bool HandleEvent(Event event, bool ok);  // returns whether operations are still pending
  void WriteLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // writes frame_
  void WriteLocked(Message message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FinishLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Target target_;
  const size_t queue_frames_;
  const Events events_;
  grpc::CompletionQueue completions_;
  grpc::ClientContext context_;
  std::unique_ptr<v1::StageLink::Stub> stub_;
  std::unique_ptr<grpc::ClientAsyncWriter<v1::Frame>> writer_;
  v1::FrameAck ack_;
  grpc::Status finish_;

  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Message> queue_ ABSL_GUARDED_BY(mutex_);
  v1::Frame frame_ ABSL_GUARDED_BY(mutex_);  // the one being written
  absl::Status closed_ ABSL_GUARDED_BY(mutex_);
  bool accepted_ ABSL_GUARDED_BY(mutex_) = false;
  bool ready_ ABSL_GUARDED_BY(mutex_) = false;  // the hello is out: frames may follow
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool finished_ ABSL_GUARDED_BY(mutex_) = false;

  std::thread thread_;  // last member: the thread uses all the others
};

}  // namespace stagecoach::worker
