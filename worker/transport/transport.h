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
#include "worker/transport/device_channels.h"

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
  uint64_t sent_unix_ns = 0;  // by the sender's clock; 0: not known
};

struct Neighbours {
  uint64_t epoch = 0;
  int32_t stage = 0;
  int32_t n_stages = 1;
  std::string next_address;   // of stage + 1; empty on the last
  std::string first_address;  // for the last stage's tokens; empty with one stage
  // LinkOffer's of the stages that the links begin at, or for tokens of the first one; all empty:
  // everything goes through the host.
  std::string next_link, previous_link, tokens_link;
};

// What a stage offers its neighbours to meet by, in opaque bytes.
struct LinkOffer {
  bool ready = false;  // the stage can hand messages from device to device
  std::string next;    // for the link to stage + 1; empty on the last
  std::string tokens;  // on the first stage: for the last one's tokens
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Before anything else is sized: takes the memory that links between devices need.
  virtual absl::Status Prepare(const LinkSizes& sizes) {
    static_cast<void>(sizes);
    return absl::OkStatus();
  }
  // Before every Join, for its epoch.
  virtual absl::StatusOr<LinkOffer> OfferLinks(uint64_t epoch, int32_t stage, int32_t n_stages) {
    static_cast<void>(epoch), static_cast<void>(stage), static_cast<void>(n_stages);
    return LinkOffer{};
  }

  // Connects to the neighbours and waits until they have connected here. DEADLINE_EXCEEDED or
  // UNAVAILABLE names who is missing. Starts a new epoch: what an earlier one had under way is
  // dropped.
  virtual absl::Status Join(const Neighbours& neighbours) = 0;

  // Blocks only while the peer's queue is full.
  virtual absl::Status Send(Channel channel, uint64_t step, std::string payload) = 0;
  // Blocks until a message is here.
  virtual absl::StatusOr<Message> Receive(Channel channel) = 0;

  // Of the epoch joined: how hidden states and tokens pass; null: as messages, on the host.
  // Metadata always are messages.
  virtual DeviceChannels* device() { return nullptr; }
  // How messages travel in the epoch joined, for people: "NCCL 2.28.9 (P2P/CUMEM), 24 GB/s".
  virtual std::string Description() const { return "host"; }

  virtual ChannelCounters Counters(Channel channel) const = 0;

  // Ends the epoch with `reason`: every blocked and later call returns it until the next Join.
  // Idempotent.
  virtual void Close(absl::Status reason) = 0;
};

}  // namespace stagecoach::worker
