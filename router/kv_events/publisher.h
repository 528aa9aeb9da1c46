// Publishes KV events through ZeroMQ, as vLLM does: a PUB socket sends [topic, sequence number,
// payload]. A ROUTER socket repeats the last payloads to those who ask: a request is a sequence
// number to start with, and the answer one [sequence number, payload] after the other, the last one
// with the number -1 and an empty payload. Numbers have 8 bytes, big-endian, and begin with 0.
//
// The first message says that all blocks are cleared, since listeners may know those of a router
// that was here before. It comes with the first events, when listeners had time to connect.
//
// Nothing here makes a scheduler wait. One thread encodes and sends, another one repeats. A
// listener that is too slow loses messages, which it sees by their numbers. If the first thread is
// too slow, a scheduler's events are lost here; the scheduler then tells its whole cache anew
// (KvEventLog).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/closable_queue.h"
#include "common/flags/front_end_flags.h"
#include "common/mutex.h"
#include "router/kv_events/encoding.h"
#include "router/kv_events/replay_buffer.h"
#include "router/scheduler/kv_events.h"

namespace stagecoach::router {

// The PUB socket listens, as vLLM's, if the endpoint names a wildcard address, a wildcard port or a
// file. Otherwise it connects to an indexer that listens.
bool ListensAt(const std::string& endpoint);

// Thread-safe.
class KvEventPublisher {
 public:
  struct Limits {
    size_t max_queued_blocks = 1 << 17;   // that events name, beyond the events queued last
    size_t max_payloads = 10'000;         // in the replay buffer
    size_t max_payload_bytes = 64 << 20;  // in the replay buffer
    int max_unread = 1000;  // messages on their way to a listener; more are lost to it
  };

  // REQUIRES: the flags have an endpoint. UNAVAILABLE, INVALID_ARGUMENT: a socket cannot listen or
  // connect; the message names the flag.
  static absl::StatusOr<std::unique_ptr<KvEventPublisher>> Start(const KvEventFlags& flags,
                                                                 const Limits& limits);
  static absl::StatusOr<std::unique_ptr<KvEventPublisher>> Start(const KvEventFlags& flags) {
    return Start(flags, Limits());
  }
  // Sends what is queued first. No sink may be used any more.
  ~KvEventPublisher();
  KvEventPublisher(const KvEventPublisher&) = delete;
  KvEventPublisher& operator=(const KvEventPublisher&) = delete;

  // For the events of a replica. It lives as long as the publisher.
  KvEventSink* SinkOf(size_t replica);

  // With the port that the system has chosen for "*". Empty: there is no replay.
  const std::string& endpoint() const { return endpoint_; }
  const std::string& replay_endpoint() const { return replay_endpoint_; }

  struct Report {
    uint64_t n_published = 0;  // batches
    uint64_t n_dropped = 0;    // batches
    uint64_t n_replays = 0;    // answered requests
  };
  Report Read() const;

 private:
  class Sink;
  struct Sockets;

  KvEventPublisher(std::string topic, const Limits& limits, std::unique_ptr<Sockets> sockets);
  bool HasRoom() const { return n_queued_blocks_ < limits_.max_queued_blocks; }
  bool Publish(KvEventBatch batch);
  void PublishAll();  // on a thread of its own
  void Send(const KvEventBatch& batch);
  void AnswerReplays();  // on a thread of its own

  const std::string topic_;
  const Limits limits_;
  const std::unique_ptr<Sockets> sockets_;
  std::string endpoint_, replay_endpoint_;
  ReplayBuffer replay_;
  uint64_t next_sequence_ = 0;  // only the first thread uses it
  std::atomic<size_t> n_queued_blocks_{0};
  std::atomic<uint64_t> n_published_{0}, n_dropped_{0}, n_replays_{0};
  ClosableQueue<KvEventBatch> queue_;
  Mutex mutex_;
  std::deque<Sink> sinks_ ABSL_GUARDED_BY(mutex_);
  std::thread publishes_, replays_;
};

}  // namespace stagecoach::router
