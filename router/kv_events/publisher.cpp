#include "router/kv_events/publisher.h"

#include <fmt/format.h>
#include <pthread.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <string_view>
#include <utility>
#include <vector>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "common/check.h"
#include "common/status.h"
#include "common/unix_time.h"

namespace stagecoach::router {
namespace {

// For what listeners have not taken yet when the publisher ends.
constexpr int kLingerMs = 500;
constexpr uint64_t kEnd = UINT64_MAX;  // -1
constexpr size_t kNumberBytes = sizeof(uint64_t);

zmq::message_t AsMessage(uint64_t number) {
  std::array<uint8_t, kNumberBytes> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<uint8_t>(number >> (8 * (bytes.size() - 1 - i)));
  }
  return {bytes.data(), bytes.size()};
}

uint64_t AsNumber(std::span<const uint8_t> bytes) {
  uint64_t number = 0;
  for (const uint8_t byte : bytes) number = number << 8 | byte;
  return number;
}

// Shares the payload, so that listeners that do not read take no memory of their own.
zmq::message_t AsMessage(const ReplayBuffer::Payload& payload) {
  auto owner = std::make_unique<ReplayBuffer::Payload>(payload);
  // ZeroMQ takes a pointer to bytes that it could change, and does not change them.
  auto* const bytes = const_cast<char*>(payload->data());  // NOLINT(*-const-cast)
  return {bytes, payload->size(),
          [](void*, void* hint) { delete static_cast<ReplayBuffer::Payload*>(hint); },  // NOLINT
          owner.release()};
}

absl::Status Failed(const char* flag, const std::string& endpoint, const zmq::error_t& error) {
  const std::string text = fmt::format("{} {}: {}", flag, endpoint, error.what());
  return error.num() == EINVAL || error.num() == EPROTONOSUPPORT ? absl::InvalidArgumentError(text)
                                                                 : absl::UnavailableError(text);
}

}  // namespace

bool ListensAt(const std::string& endpoint) {
  return endpoint.starts_with("ipc://") || endpoint.find('*') != std::string::npos ||
         endpoint.find("::") != std::string::npos ||
         endpoint.find("//0.0.0.0:") != std::string::npos;
}

struct KvEventPublisher::Sockets {
  zmq::context_t context{1};
  zmq::socket_t pub{context, zmq::socket_type::pub};
  zmq::socket_t replay;  // null: no replay

  absl::Status Open(const char* flag, const std::string& endpoint, bool listens, int max_queued,
                    zmq::socket_t& socket) {
    try {
      socket.set(zmq::sockopt::sndhwm, max_queued);
      socket.set(zmq::sockopt::linger, kLingerMs);
      if (endpoint.find('[') != std::string::npos) socket.set(zmq::sockopt::ipv6, true);
      if (listens) {
        socket.bind(endpoint);
      } else {
        socket.connect(endpoint);
      }
    } catch (const zmq::error_t& error) {
      return Failed(flag, endpoint, error);
    }
    return absl::OkStatus();
  }
};

class KvEventPublisher::Sink final : public KvEventSink {
 public:
  Sink(KvEventPublisher* publisher, size_t replica)
      : publisher_(*publisher), rank_(static_cast<uint32_t>(replica)) {}

  bool Publish(KvEvents events) override {
    return publisher_.Publish(
        {.unix_ns = UnixNanoseconds(), .rank = rank_, .events = std::move(events)});
  }
  bool HasRoom() override { return publisher_.HasRoom(); }

 private:
  KvEventPublisher& publisher_;
  const uint32_t rank_;
};

absl::StatusOr<std::unique_ptr<KvEventPublisher>> KvEventPublisher::Start(const KvEventFlags& flags,
                                                                          const Limits& limits) {
  SC_CHECK(!flags.endpoint.empty());
  auto sockets = std::make_unique<Sockets>();
  SC_RETURN_IF_ERROR(sockets->Open("--kv-events", flags.endpoint, ListensAt(flags.endpoint),
                                   limits.max_unread, sockets->pub));
  if (!flags.replay.empty()) {
    sockets->replay = zmq::socket_t(sockets->context, zmq::socket_type::router);
    // A whole replay and its end.
    const int max_unread = static_cast<int>(limits.max_payloads) + 1;
    SC_RETURN_IF_ERROR(sockets->Open("--kv-events-replay", flags.replay, /*listens=*/true,
                                     max_unread, sockets->replay));
  }
  return std::unique_ptr<KvEventPublisher>(
      new KvEventPublisher(flags.topic, limits, std::move(sockets)));
}

KvEventPublisher::KvEventPublisher(std::string topic, const Limits& limits,
                                   std::unique_ptr<Sockets> sockets)
    : topic_(std::move(topic)),
      limits_(limits),
      sockets_(std::move(sockets)),
      endpoint_(sockets_->pub.get(zmq::sockopt::last_endpoint)),
      replay_(limits.max_payloads, limits.max_payload_bytes) {
  publishes_ = std::thread([this] { PublishAll(); });
  if (!sockets_->replay) return;
  replay_endpoint_ = sockets_->replay.get(zmq::sockopt::last_endpoint);
  replays_ = std::thread([this] { AnswerReplays(); });
}

KvEventPublisher::~KvEventPublisher() {
  queue_.Close(absl::CancelledError("no more events are published"),
               ClosableQueue<KvEventBatch>::Rest::kKeep);
  publishes_.join();
  sockets_->pub.close();
  if (!replays_.joinable()) return;
  sockets_->context.shutdown();  // wakes the thread
  replays_.join();
}

KvEventSink* KvEventPublisher::SinkOf(size_t replica) {
  const MutexLock lock(mutex_);
  return &sinks_.emplace_back(this, replica);
}

bool KvEventPublisher::Publish(KvEventBatch batch) {
  if (!HasRoom()) {
    ++n_dropped_;
    return false;
  }
  n_queued_blocks_ += NBlocksOf(batch.events);
  queue_.Push(std::move(batch)).IgnoreError();  // never full
  return true;
}

void KvEventPublisher::PublishAll() {
  pthread_setname_np(pthread_self(), "kv events");
  while (true) {
    const absl::StatusOr<KvEventBatch> batch = queue_.Pop();
    if (!batch.ok()) return;
    n_queued_blocks_ -= NBlocksOf(batch->events);
    if (next_sequence_ == 0) {
      Send({.unix_ns = batch->unix_ns, .rank = std::nullopt, .events = {KvCacheCleared{}}});
    }
    Send(*batch);
  }
}

void KvEventPublisher::Send(const KvEventBatch& batch) {
  const uint64_t sequence = next_sequence_++;
  const auto payload = std::make_shared<const std::string>(EncodeKvEvents(batch));
  replay_.Add(sequence, payload);
  std::array<zmq::message_t, 3> frames{zmq::message_t(topic_), AsMessage(sequence),
                                       AsMessage(payload)};
  try {
    // A PUB socket never waits: it drops what a listener does not take.
    zmq::send_multipart(sockets_->pub, frames);
    ++n_published_;
  } catch (const zmq::error_t& error) {
    spdlog::error("KV events cannot be sent: {}", error.what());
  }
}

void KvEventPublisher::AnswerReplays() {
  pthread_setname_np(pthread_self(), "kv replay");
  while (true) {
    try {
      std::vector<zmq::message_t> frames;
      if (!zmq::recv_multipart(sockets_->replay, std::back_inserter(frames))) continue;
      // The identity of who asks, an empty frame, the number.
      if (frames.size() != 3 || frames[2].size() != kNumberBytes) {
        spdlog::debug("--kv-events-replay: a request is not a number of 8 bytes");
        continue;
      }
      const auto answer = [this, &frames](uint64_t sequence, zmq::message_t payload) {
        zmq::message_t identity, delimiter;
        identity.copy(frames[0]);
        std::array<zmq::message_t, 4> reply{std::move(identity), std::move(delimiter),
                                            AsMessage(sequence), std::move(payload)};
        zmq::send_multipart(sockets_->replay, reply);
      };
      const uint64_t first = AsNumber({frames[2].data<uint8_t>(), kNumberBytes});
      for (const ReplayBuffer::Entry& entry : replay_.From(first)) {
        answer(entry.sequence, AsMessage(entry.payload));
      }
      answer(kEnd, zmq::message_t());
      ++n_replays_;
    } catch (const zmq::error_t& error) {
      if (error.num() == ETERM) return;
      if (error.num() != EINTR) spdlog::error("KV events cannot be replayed: {}", error.what());
    }
  }
}

KvEventPublisher::Report KvEventPublisher::Read() const {
  return {.n_published = n_published_, .n_dropped = n_dropped_, .n_replays = n_replays_};
}

}  // namespace stagecoach::router
