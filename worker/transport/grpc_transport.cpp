#include "worker/transport/grpc_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/rpc/status.h"
#include "common/status.h"

namespace stagecoach::worker {
namespace {

constexpr Channel kAllChannels[] = {Channel::kMetadata, Channel::kHidden, Channel::kTokens};

size_t Index(Channel channel) { return static_cast<size_t>(channel); }

}  // namespace

class GrpcTransport::Service final : public v1::StageLink::Service {
 public:
  explicit Service(GrpcTransport* transport) : transport_(transport) {}

  grpc::Status Metadata(grpc::ServerContext* context, grpc::ServerReader<v1::Frame>* reader,
                        v1::FrameAck*) override {
    return transport_->Serve(Channel::kMetadata, context, reader);
  }
  grpc::Status Hidden(grpc::ServerContext* context, grpc::ServerReader<v1::Frame>* reader,
                      v1::FrameAck*) override {
    return transport_->Serve(Channel::kHidden, context, reader);
  }
  grpc::Status Tokens(grpc::ServerContext* context, grpc::ServerReader<v1::Frame>* reader,
                      v1::FrameAck*) override {
    return transport_->Serve(Channel::kTokens, context, reader);
  }

 private:
  GrpcTransport* const transport_;
};

GrpcTransport::GrpcTransport(const GrpcTransportOptions& options)
    : options_(options),
      service_(std::make_unique<Service>(this)),
      closed_(absl::FailedPreconditionError("the stage has not joined a pipeline")) {
  for (auto& inbound : inbound_) {
    inbound = std::make_unique<Inbound>(options_.queue_frames);
    inbound->queue.Close(closed_);
  }
}

GrpcTransport::~GrpcTransport() {
  Shutdown();
  // Destroy the links outside the lock, because their threads may be about to take it.
  std::array<std::shared_ptr<GrpcLink>, kChannels> links;
  {
    MutexLock lock(mutex_);
    links.swap(outbound_);
  }
}

grpc::Service* GrpcTransport::service() { return service_.get(); }

absl::Status GrpcTransport::Join(const Neighbours& neighbours) {
  Close(absl::AbortedError("the stage is joining again"));
  std::array<std::shared_ptr<GrpcLink>, kChannels> old_links;
  uint64_t generation = 0;
  {
    MutexLock lock(mutex_);
    old_links.swap(outbound_);
    changed_.wait(lock, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      for (const auto& inbound : inbound_) {
        if (inbound->context != nullptr) return false;
      }
      return true;
    });
    if (shut_down_) return closed_;
    for (const auto& inbound : inbound_) inbound->queue.Reopen();
    counters_ = {};
    place_ = neighbours;
    closed_ = absl::OkStatus();
    generation = ++generation_;
    changed_.notify_all();
  }
  old_links = {};
  auto links = MakeLinks(neighbours, generation);

  MutexLock lock(mutex_);
  if (!closed_.ok()) return closed_;
  outbound_ = std::move(links);
  const bool settled =
      changed_.wait_for(lock, options_.join_timeout, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return !closed_.ok() || MissingLocked().empty();
      });
  if (!settled) {
    CloseLocked(absl::DeadlineExceededError(
        absl::StrCat(MissingLocked(), " within ", options_.join_timeout.count(), " ms")));
  }
  return closed_;
}

std::array<std::shared_ptr<GrpcLink>, kChannels> GrpcTransport::MakeLinks(const Neighbours& place,
                                                                          uint64_t generation) {
  std::array<std::shared_ptr<GrpcLink>, kChannels> links;
  const auto connect = [&](Channel channel, const std::string& address, int32_t peer) {
    if (address.empty()) return;
    GrpcLink::Events events;
    events.on_accepted = [this] {
      MutexLock lock(mutex_);
      changed_.notify_all();
    };
    events.on_lost = [this, generation](absl::Status status) {
      Lost(generation, std::move(status));
    };
    links[Index(channel)] = std::make_shared<GrpcLink>(
        GrpcLink::Target{channel, address, peer, place.stage, place.epoch},
        // A separate connection, so that small metadata never waits behind megabytes of hidden
        // states.
        MakeInternalChannel(address, options_.access, options_.max_message_bytes),
        options_.queue_frames, std::move(events));
  };
  connect(Channel::kMetadata, place.next_address, place.stage + 1);
  connect(Channel::kHidden, place.next_address, place.stage + 1);
  connect(Channel::kTokens, place.first_address, 0);
  return links;
}

int32_t GrpcTransport::SenderLocked(Channel channel) const {
  if (channel != Channel::kTokens) return place_.stage - 1;
  return place_.stage == 0 && place_.n_stages > 1 ? place_.n_stages - 1 : -1;
}

std::string GrpcTransport::MissingLocked() const {
  for (Channel channel : kAllChannels) {
    const auto& link = outbound_[Index(channel)];
    if (link != nullptr && !link->accepted()) {
      return absl::StrCat(link->PeerName(), " did not accept the ", ChannelName(channel), " link");
    }
    const int32_t sender = SenderLocked(channel);
    if (sender >= 0 && inbound_[Index(channel)]->context == nullptr) {
      return absl::StrCat("stage ", sender, " did not connect the ", ChannelName(channel),
                          " link to stage ", place_.stage);
    }
  }
  return "";
}

absl::Status GrpcTransport::Send(Channel channel, uint64_t step, std::string payload) {
  std::shared_ptr<GrpcLink> link;
  {
    MutexLock lock(mutex_);
    if (!closed_.ok()) return closed_;
    link = outbound_[Index(channel)];
  }
  SC_CHECK(link != nullptr);
  const size_t n_bytes = payload.size();
  const absl::Status sent = link->Send(step, std::move(payload));
  MutexLock lock(mutex_);
  if (!closed_.ok()) return closed_;
  SC_RETURN_IF_ERROR(sent);
  ++counters_[Index(channel)].sent_frames;
  counters_[Index(channel)].sent_bytes += n_bytes;
  return absl::OkStatus();
}

absl::StatusOr<Message> GrpcTransport::Receive(Channel channel) {
  SC_ASSIGN_OR_RETURN(Message message, inbound_[Index(channel)]->queue.Pop());
  MutexLock lock(mutex_);
  ++counters_[Index(channel)].received_frames;
  counters_[Index(channel)].received_bytes += message.payload.size();
  return message;
}

ChannelCounters GrpcTransport::Counters(Channel channel) const {
  MutexLock lock(mutex_);
  return counters_[Index(channel)];
}

void GrpcTransport::Close(absl::Status reason) {
  MutexLock lock(mutex_);
  CloseLocked(std::move(reason));
}

void GrpcTransport::CloseLocked(absl::Status reason) {
  if (!closed_.ok()) return;
  closed_ = std::move(reason);
  for (const auto& inbound : inbound_) {
    inbound->queue.Close(closed_);
    if (inbound->context != nullptr) inbound->context->TryCancel();
  }
  for (const auto& link : outbound_) {
    if (link != nullptr) link->Close(closed_);
  }
  changed_.notify_all();
}

void GrpcTransport::Shutdown() {
  MutexLock lock(mutex_);
  CloseLocked(absl::UnavailableError("the worker is shutting down"));
  shut_down_ = true;
  changed_.notify_all();
}

void GrpcTransport::Lost(uint64_t generation, absl::Status reason) {
  MutexLock lock(mutex_);
  if (generation == generation_) CloseLocked(std::move(reason));
}

absl::StatusOr<uint64_t> GrpcTransport::Attach(Channel channel, const v1::LinkHello& hello,
                                               grpc::ServerContext* context) {
  MutexLock lock(mutex_);
  // A neighbour may connect before the router's Join has reached this stage.
  const auto joined = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_.ok() && place_.epoch == hello.epoch();
  };
  changed_.wait_for(lock, options_.join_timeout,
                    [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return shut_down_ || joined(); });
  if (shut_down_) return closed_;
  if (!joined()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "stage ", hello.from_stage(), " sent a hello of epoch ", hello.epoch(), "; this worker is ",
        closed_.ok() ? absl::StrCat("in epoch ", place_.epoch) : "in no epoch"));
  }
  const int32_t sender = SenderLocked(channel);
  if (sender < 0 || hello.from_stage() != static_cast<uint32_t>(sender)) {
    return absl::InvalidArgumentError(absl::StrCat("stage ", hello.from_stage(), " has no ",
                                                   ChannelName(channel), " link to stage ",
                                                   place_.stage, " of ", place_.n_stages));
  }
  Inbound& inbound = *inbound_[Index(channel)];
  if (inbound.context != nullptr) {
    return absl::AlreadyExistsError(
        absl::StrCat("the ", ChannelName(channel), " link of stage ", sender, " exists already"));
  }
  if (context->IsCancelled()) return absl::CancelledError("the peer disconnected");
  inbound.context = context;
  changed_.notify_all();
  return generation_;
}

void GrpcTransport::Detach(Channel channel) {
  MutexLock lock(mutex_);
  inbound_[Index(channel)]->context = nullptr;
  changed_.notify_all();
}

grpc::Status GrpcTransport::Serve(Channel channel, grpc::ServerContext* context,
                                  grpc::ServerReader<v1::Frame>* reader) {
  v1::Frame frame;
  if (!reader->Read(&frame) || !frame.has_hello()) {
    return ToGrpc(absl::InvalidArgumentError("a link's first frame must be its hello"));
  }
  const uint32_t from_stage = frame.hello().from_stage();
  const absl::StatusOr<uint64_t> generation = Attach(channel, frame.hello(), context);
  if (!generation.ok()) return ToGrpc(generation.status());

  context->AddInitialMetadata(kLinkAcceptedKey, kLinkAcceptedValue);
  reader->SendInitialMetadata();
  ClosableQueue<Message>& queue = inbound_[Index(channel)]->queue;
  absl::Status end;
  while (end.ok() && reader->Read(&frame)) {
    end = queue.Push(
        Message{frame.step(), std::move(*frame.mutable_payload()), frame.sent_unix_ns()});
  }
  Lost(*generation,
       absl::UnavailableError(absl::StrCat("stage ", from_stage, " at ", context->peer(), ": ",
                                           ChannelName(channel), " link lost")));
  Detach(channel);
  return ToGrpc(end);
}

}  // namespace stagecoach::worker
