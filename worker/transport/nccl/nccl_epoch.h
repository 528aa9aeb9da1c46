// All NCCL links of a stage in one epoch.
//
//   to the next stage          metadata, hidden states   ids made by this stage
//   from the previous stage    metadata, hidden states   ids made by the previous stage
//   last stage -> first stage  tokens                    ids made by the first stage
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "kernels/cuda/device/message_copy.h"
#include "kernels/op_args.h"
#include "worker/transport/nccl/meta_channel.h"
#include "worker/transport/nccl/nccl_link.h"
#include "worker/transport/nccl/receive_ring.h"
#include "worker/transport/nccl/send_ring.h"
#include "worker/transport/nccl/step_timer.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

// Ring buffers of all links, reused in every epoch.
struct LinkMemory {
  LinkSizes sizes;
  kernels::Buffer hidden_out, hidden_in;  // [kHiddenSlots, MessageBytes(hidden_bytes)]
  kernels::Buffer tokens_out, tokens_in;  // [kTokensOutSlots or kTokensInSlots, MessageBytes(...)]
  kernels::Buffer meta_out, meta_in;      // [kMetaSlots, kMetaSlotBytes], like the next two
  kernels::Buffer meta_out_host, meta_in_host;
  kernels::Buffer broken_step, broken_step_host;  // one uint64: kernels::cuda::BrokenStep
};
// Size of a message on the link: the payload and its seal.
inline constexpr size_t MessageBytes(size_t payload_bytes) {
  return payload_bytes + kernels::cuda::kMessageSealBytes;
}
inline constexpr size_t kHiddenSlots = 2;
inline constexpr size_t kTokensOutSlots = 4;
// Enough for a step to find its tokens here although later steps have already received theirs.
inline constexpr size_t kTokensInSlots = 64;

class NcclEpoch {
 public:
  struct Options {
    const NcclApi* api = nullptr;
    int nccl_version = 0;
    int32_t device = 0;
    cudaStream_t compute = nullptr;
    Neighbours place;
    LinkMemory memory;
    std::chrono::milliseconds longest_step{30'000};
    uint64_t disturbance_seed = 0;
    bool poison = false;
    std::function<void(absl::Status)> on_failure;  // called from the links' threads
  };

  // Makes the links. Does not wait for a peer yet.
  static absl::StatusOr<std::unique_ptr<NcclEpoch>> Make(Options options);
  // Aborts the links if nobody has, and waits until all their work has ended.
  ~NcclEpoch();

  // Connects all links at the same time. Then makes a first exchange on each, one after another, in
  // an order that all stages share. Then starts the rings' threads. NCCL allocates memory when a
  // link connects and again with its first message, and an allocation may wait for all work running
  // on the GPU. Therefore no message may wait for its peer meanwhile: with three stages, such waits
  // could form a cycle.
  absl::Status Connect(NcclLink::Clock::time_point deadline);
  // Returns at once. Every call then ends with `reason`. All links are aborted together in the
  // background, one thread each. May be called from any thread.
  void Abort(const absl::Status& reason);

  // DATA_LOSS if a message that the device has copied so far was cut off. Any thread.
  absl::Status CheckMessages() const;
  // DEADLINE_EXCEEDED if a pending operation makes no progress.
  absl::Status CheckProgress();
  ChannelCounters Counters(Channel channel) const;
  // Bandwidth of the fastest hop of hidden states here, measured when it connected. 0: unknown.
  double hidden_gb_per_s() const { return hidden_gb_per_s_; }
  bool previous_is_here() const { return previous_is_here_; }  // on this machine

  // Each is null if the stage has no such link.
  MetaSender* meta_out() { return meta_out_.get(); }
  MetaReceiver* meta_in() { return meta_in_.get(); }
  SendRing* hidden_out() { return hidden_out_.get(); }
  ReceiveRing* hidden_in() { return hidden_in_.get(); }
  SendRing* tokens_out() { return tokens_out_.get(); }
  ReceiveRing* tokens_in() { return tokens_in_.get(); }
  const StepTimer& timer() const { return timer_; }

 private:
  struct Links {
    std::unique_ptr<NcclLink> meta_out, meta_in, hidden_out, hidden_in, tokens_out, tokens_in;
    // In the pipeline's order, which is the same for any two stages: from the previous stage, to
    // the next stage, tokens.
    std::vector<NcclLink*> All() const;
  };
  explicit NcclEpoch(Options options) : options_(std::move(options)) {}
  absl::Status MakeLinks();
  absl::Status MakeLink(const NcclUniqueId& id, NcclLink::Role role, std::string name,
                        std::unique_ptr<NcclLink>* link);
  absl::Status ConnectAll(NcclLink::Clock::time_point deadline);
  absl::Status FirstExchange(NcclLink* link, NcclLink::Clock::time_point deadline);
  kernels::cuda::BrokenStep Broken() const;
  absl::Status ForgetBroken();
  absl::Status StartRings();
  const kernels::Buffer& MemoryOf(const NcclLink* link) const;

  const Options options_;
  Links links_;
  StepTimer timer_;
  double hidden_gb_per_s_ = 0;
  bool previous_is_here_ = false;

  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> abort_threads_ ABSL_GUARDED_BY(mutex_);

  // Declared after the links, because they use them.
  std::unique_ptr<MetaSender> meta_out_;
  std::unique_ptr<MetaReceiver> meta_in_;
  std::unique_ptr<SendRing> hidden_out_, tokens_out_;
  std::unique_ptr<ReceiveRing> hidden_in_, tokens_in_;
};

// Number of ids that a stage makes.
inline constexpr size_t kNextIds = 2;  // metadata, hidden states
inline constexpr size_t kTokensIds = 1;

}  // namespace stagecoach::worker
