// The interface between neighbouring stages: three one-way channels, each in step order.
//   metadata  stage i -> i + 1   describes the step; sent ahead of the hidden states
//   hidden    stage i -> i + 1   [T, hidden_size] rows with the residual added in, float32 or as
//                                LoadConfig::hidden_dtype says
//   tokens    last -> first      sampled tokens, so that the next decode step needs no router
//
// Threads: one sender and one receiver per channel; each may be its own thread. Close() may be
// called from any thread. Errors: once a link fails, every blocked and later call on every channel
// returns UNAVAILABLE, which names the peer. No call waits longer than that.
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
  uint64_t sent_unix_ns = 0;  // by the sender's clock; 0: unknown
};

struct Neighbours {
  uint64_t epoch = 0;
  int32_t stage = 0;
  int32_t n_stages = 1;
  std::string next_address;   // of stage + 1; empty on the last stage
  std::string first_address;  // for the last stage's tokens; empty with a single stage
  // LinkOffers of the stages where the links begin; for tokens, of the first stage. All empty:
  // everything goes through the host.
  std::string next_link, previous_link, tokens_link;
};

// Opaque bytes that a stage's neighbours need to connect to it.
struct LinkOffer {
  bool ready = false;  // the stage can pass messages from device to device
  std::string next;    // for the link to stage + 1; empty on the last stage
  std::string tokens;  // first stage: for the link from the last stage
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Whether it can pass messages from device to device. Its receives then occupy SMs, and its
  // communicators take memory (worker/model/link_needs.h).
  virtual bool links_devices() const { return false; }
  // Does now what the first Join would do once per process, such as loading a library. For a
  // process that waits for work.
  virtual void WarmUp() {}
  // Allocates the memory that links between devices need. Call it before any other memory is sized.
  virtual absl::Status Prepare(const LinkSizes& sizes) {
    static_cast<void>(sizes);
    return absl::OkStatus();
  }
  // Call it before every Join, for the same epoch.
  virtual absl::StatusOr<LinkOffer> OfferLinks(uint64_t epoch, int32_t stage, int32_t n_stages) {
    static_cast<void>(epoch), static_cast<void>(stage), static_cast<void>(n_stages);
    return LinkOffer{};
  }

  // Connects to the neighbours and waits until they have connected to this stage. DEADLINE_EXCEEDED
  // or UNAVAILABLE names the missing peer. Starts a new epoch: messages of an earlier one are
  // dropped.
  virtual absl::Status Join(const Neighbours& neighbours) = 0;

  // Blocks only while the peer's queue is full.
  virtual absl::Status Send(Channel channel, uint64_t step, std::string payload) = 0;
  // Blocks until a message has arrived.
  virtual absl::StatusOr<Message> Receive(Channel channel) = 0;

  // Channels for hidden states and tokens in the current epoch. Null: they pass as messages, on the
  // host. Metadata always passes as messages.
  virtual DeviceChannels* device() { return nullptr; }
  // How messages travel in the current epoch, for people: "NCCL 2.28.9 (P2P/CUMEM), 24 GB/s".
  virtual std::string Description() const { return "host"; }

  virtual ChannelCounters Counters(Channel channel) const = 0;

  // Ends the epoch with `reason`: every blocked and later call returns it until the next Join.
  // Idempotent.
  virtual void Close(absl::Status reason) = 0;
};

}  // namespace stagecoach::worker
