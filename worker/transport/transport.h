// The seam between neighbouring stages: three one-way channels, each in step order.
//   metadata  stage i -> i + 1   what the step is; sent ahead of the hidden states
//   hidden    stage i -> i + 1   [T, hidden_size] float32 rows, the residual folded in
//   tokens    last    -> first   the sampled tokens, so that the next decode step needs no router
//
// Threads: one sender and one receiver a channel, each its own thread if it likes. Close() may come
// from any thread. Errors: once a link fails every call on every channel returns UNAVAILABLE naming
// the peer, and so do calls that were blocked. Nothing waits longer than that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace stagecoach::worker {

enum class Channel : uint8_t { kMetadata, kHidden, kTokens };
inline constexpr int kChannels = 3;

struct ChannelCounters {
  uint64_t sent_frames = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_frames = 0;
  uint64_t received_bytes = 0;
};

struct Message {
  uint64_t step = 0;
  std::string payload;
};

struct Neighbours {
  uint64_t epoch = 0;
  int32_t stage = 0;
  int32_t n_stages = 1;
  std::string next_address;   // of stage + 1; empty on the last
  std::string first_address;  // for the last stage's tokens; empty with one stage
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Connects to the neighbours and waits until they have connected here. DEADLINE_EXCEEDED or
  // UNAVAILABLE names who is missing. Starts a new epoch: what an earlier one had under way is
  // dropped.
  virtual absl::Status Join(const Neighbours& neighbours) = 0;

  // Blocks only while the peer's queue is full.
  virtual absl::Status Send(Channel channel, uint64_t step, std::string payload) = 0;
  // Blocks until a message is here.
  virtual absl::StatusOr<Message> Receive(Channel channel) = 0;

  virtual ChannelCounters Counters(Channel channel) const = 0;

  // Ends the epoch with `reason`: every blocked and later call returns it until the next Join.
  // Idempotent.
  virtual void Close(absl::Status reason) = 0;
};

}  // namespace stagecoach::worker
