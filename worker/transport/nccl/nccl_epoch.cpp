#include "worker/transport/nccl/nccl_epoch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/check.h"
#include "common/status.h"
#include "worker/transport/nccl/link_offer.h"

namespace stagecoach::worker {
namespace {

constexpr size_t kFirstBytes = sizeof(int32_t);
constexpr size_t kMeasuredBytes = size_t{8} << 20;  // at most
constexpr int kMeasured = 4;                        // number of messages; the last one is timed

bool IsThisHost(const std::string& name) {
  char host[64] = "";
  gethostname(host, sizeof(host) - 1);
  return name == host;
}

}  // namespace

std::vector<NcclLink*> NcclEpoch::Links::All() const {
  std::vector<NcclLink*> links;
  for (const auto* link : {&meta_in, &hidden_in, &meta_out, &hidden_out, &tokens_in, &tokens_out}) {
    if (*link != nullptr) links.push_back(link->get());
  }
  return links;
}

absl::StatusOr<std::unique_ptr<NcclEpoch>> NcclEpoch::Make(Options options) {
  std::unique_ptr<NcclEpoch> epoch(new NcclEpoch(std::move(options)));
  SC_RETURN_IF_ERROR(epoch->MakeLinks());
  SC_RETURN_IF_ERROR(epoch->timer_.Init());
  SC_RETURN_IF_ERROR(epoch->ForgetBroken());
  return epoch;
}

absl::Status NcclEpoch::ForgetBroken() {
  *Broken().host = 0;
  return kernels::cuda::ToStatus(
      cudaMemsetAsync(Broken().device, 0, sizeof(uint64_t), options_.compute), "no memset");
}

NcclEpoch::~NcclEpoch() {
  Abort(absl::CancelledError("the stage has ended"));
  for (std::thread& thread : abort_threads_) thread.join();
  meta_in_.reset();
  hidden_out_.reset();
  tokens_out_.reset();
  hidden_in_.reset();
  tokens_in_.reset();
  // Wait for work on the compute stream that waits for our events or reads our slots.
  cudaSetDevice(options_.device);
  cudaStreamSynchronize(options_.compute);
}

absl::Status NcclEpoch::MakeLink(const NcclUniqueId& id, NcclLink::Role role, std::string name,
                                 std::unique_ptr<NcclLink>* link) {
  // Each link gets different delays.
  const uint64_t seed = options_.disturbance_seed;
  const uint64_t own_seed = seed == 0 ? 0 : (seed ^ std::hash<std::string>()(name)) | 1;
  SC_ASSIGN_OR_RETURN(*link, NcclLink::Make({.api = options_.api,
                                             .device = options_.device,
                                             .name = std::move(name),
                                             .id = id,
                                             .role = role,
                                             .disturbance_seed = own_seed}));
  return absl::OkStatus();
}

absl::Status NcclEpoch::MakeLinks() {
  const Neighbours& place = options_.place;
  const auto decode = [&](const std::string& bytes, size_t n_ids) {
    return DecodeLinkTerms(bytes, place.epoch, options_.nccl_version, n_ids);
  };
  const auto make_pair = [&](const LinkTerms& terms, int32_t from, NcclLink::Role role,
                             std::unique_ptr<NcclLink>* meta,
                             std::unique_ptr<NcclLink>* hidden) -> absl::Status {
    const std::string way = fmt::format("from stage {} to stage {}", from, from + 1);
    SC_RETURN_IF_ERROR(MakeLink(terms.ids[0], role, "metadata " + way, meta));
    return MakeLink(terms.ids[1], role, "hidden states " + way, hidden);
  };
  const bool is_first = place.stage == 0, is_last = place.stage + 1 == place.n_stages;
  if (!is_last) {
    SC_ASSIGN_OR_RETURN(const LinkTerms terms, decode(place.next_link, kNextIds));
    SC_RETURN_IF_ERROR(make_pair(terms, place.stage, NcclLink::Role::kSender, &links_.meta_out,
                                 &links_.hidden_out));
  }
  if (!is_first) {
    SC_ASSIGN_OR_RETURN(const LinkTerms terms, decode(place.previous_link, kNextIds));
    previous_is_here_ = IsThisHost(terms.host);
    SC_RETURN_IF_ERROR(make_pair(terms, place.stage - 1, NcclLink::Role::kReceiver, &links_.meta_in,
                                 &links_.hidden_in));
  }
  if (is_first == is_last) return absl::OkStatus();
  SC_ASSIGN_OR_RETURN(const LinkTerms terms, decode(place.tokens_link, kTokensIds));
  return MakeLink(terms.ids[0], is_first ? NcclLink::Role::kReceiver : NcclLink::Role::kSender,
                  fmt::format("tokens from stage {} to stage 0", place.n_stages - 1),
                  is_first ? &links_.tokens_in : &links_.tokens_out);
}

const kernels::Buffer& NcclEpoch::MemoryOf(const NcclLink* link) const {
  const LinkMemory& memory = options_.memory;
  if (link == links_.meta_out.get()) return memory.meta_out;
  if (link == links_.meta_in.get()) return memory.meta_in;
  if (link == links_.hidden_out.get()) return memory.hidden_out;
  if (link == links_.hidden_in.get()) return memory.hidden_in;
  return link == links_.tokens_out.get() ? memory.tokens_out : memory.tokens_in;
}

absl::Status NcclEpoch::FirstExchange(NcclLink* link, NcclLink::Clock::time_point deadline) {
  const kernels::Buffer& memory = MemoryOf(link);
  SC_RETURN_IF_ERROR(link->Exchange(memory.data.get(), kFirstBytes, 1, deadline).status());
  const bool is_hidden = link == links_.hidden_in.get() || link == links_.hidden_out.get();
  if (!is_hidden) return absl::OkStatus();
  const size_t n_bytes = std::min(options_.memory.sizes.hidden_bytes, kMeasuredBytes);
  SC_ASSIGN_OR_RETURN(const double ms,
                      link->Exchange(memory.data.get(), n_bytes, kMeasured, deadline));
  if (ms > 0) {
    const MutexLock lock(mutex_);
    hidden_gb_per_s_ = std::max(hidden_gb_per_s_, static_cast<double>(n_bytes) / ms / 1e6);
  }
  return absl::OkStatus();
}

absl::Status NcclEpoch::ConnectAll(NcclLink::Clock::time_point deadline) {
  std::vector<std::thread> threads;
  for (NcclLink* link : links_.All()) {
    threads.emplace_back([this, link, deadline] {
      // The first failure is the reason. Abort the other links so that they stop waiting for peers.
      if (const absl::Status status = link->Connect(deadline); !status.ok()) Abort(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MutexLock lock(mutex_);
  return aborted_;
}

absl::Status NcclEpoch::Connect(NcclLink::Clock::time_point deadline) {
  SC_RETURN_IF_ERROR(ConnectAll(deadline));
  for (NcclLink* link : links_.All()) {
    if (const absl::Status status = FirstExchange(link, deadline); !status.ok()) {
      Abort(status);
      break;
    }
  }
  const MutexLock lock(mutex_);
  if (!aborted_.ok()) return aborted_;
  return StartRings();
}

kernels::cuda::BrokenStep NcclEpoch::Broken() const {
  return {.device = options_.memory.broken_step.As<uint64_t>(),
          .host = options_.memory.broken_step_host.As<uint64_t>()};
}

absl::Status NcclEpoch::CheckMessages() const {
  // A kernel writes this value. The caller has waited for an event recorded after that kernel.
  const uint64_t step = std::atomic_ref(*Broken().host).load(std::memory_order_acquire);
  if (step == 0) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("stage {}: the message of step {} was cut off", options_.place.stage, step));
}

absl::Status NcclEpoch::StartRings() {
  const LinkMemory& memory = options_.memory;
  const LinkSizes& sizes = memory.sizes;
  const auto send_options = [&](NcclLink* link, const kernels::Buffer& buffer, size_t payload_bytes,
                                size_t n_slots) {
    return SendRing::Options{.link = link,
                             .device = options_.device,
                             .compute = options_.compute,
                             .memory = buffer,
                             .slot_bytes = MessageBytes(payload_bytes),
                             .n_slots = n_slots,
                             .epoch = options_.place.epoch,
                             .broken = Broken(),
                             .on_failure = options_.on_failure};
  };
  const auto receive_options = [&](NcclLink* link, const kernels::Buffer& buffer,
                                   size_t payload_bytes, size_t n_slots) {
    return ReceiveRing::Options{.link = link,
                                .device = options_.device,
                                .compute = options_.compute,
                                .memory = buffer,
                                .slot_bytes = MessageBytes(payload_bytes),
                                .n_slots = n_slots,
                                .epoch = options_.place.epoch,
                                .broken = Broken(),
                                .overwrites = link == links_.tokens_in.get(),
                                .poison = options_.poison,
                                .on_failure = options_.on_failure};
  };
  if (links_.meta_out != nullptr) {
    SC_ASSIGN_OR_RETURN(
        meta_out_, MetaSender::Make(links_.meta_out.get(), options_.device, options_.place.epoch,
                                    memory.meta_out, memory.meta_out_host));
    SC_ASSIGN_OR_RETURN(hidden_out_,
                        SendRing::Start(send_options(links_.hidden_out.get(), memory.hidden_out,
                                                     sizes.hidden_bytes, kHiddenSlots)));
  }
  if (links_.meta_in != nullptr) {
    SC_ASSIGN_OR_RETURN(meta_in_, MetaReceiver::Make({.link = links_.meta_in.get(),
                                                      .device = options_.device,
                                                      .epoch = options_.place.epoch,
                                                      .device_memory = memory.meta_in,
                                                      .host_memory = memory.meta_in_host,
                                                      .on_failure = options_.on_failure}));
    SC_ASSIGN_OR_RETURN(hidden_in_,
                        ReceiveRing::Start(receive_options(links_.hidden_in.get(), memory.hidden_in,
                                                           sizes.hidden_bytes, kHiddenSlots)));
  }
  if (links_.tokens_out != nullptr) {
    SC_ASSIGN_OR_RETURN(tokens_out_,
                        SendRing::Start(send_options(links_.tokens_out.get(), memory.tokens_out,
                                                     sizes.token_bytes, kTokensOutSlots)));
  }
  if (links_.tokens_in != nullptr) {
    SC_ASSIGN_OR_RETURN(tokens_in_,
                        ReceiveRing::Start(receive_options(links_.tokens_in.get(), memory.tokens_in,
                                                           sizes.token_bytes, kTokensInSlots)));
  }
  return absl::OkStatus();
}

void NcclEpoch::Abort(const absl::Status& reason) {
  SC_CHECK(!reason.ok());
  const MutexLock lock(mutex_);
  if (!aborted_.ok()) return;
  aborted_ = reason;
  // Abort the links first: work that waits on the GPU may block the calls below.
  for (NcclLink* link : links_.All()) {
    abort_threads_.emplace_back([link] { link->Abort(); });
  }
  if (meta_in_ != nullptr) meta_in_->Close(reason);
  for (SendRing* ring : {hidden_out_.get(), tokens_out_.get()}) {
    if (ring != nullptr) ring->Close(reason);
  }
  for (ReceiveRing* ring : {hidden_in_.get(), tokens_in_.get()}) {
    if (ring != nullptr) ring->Close(reason);
  }
}

absl::Status NcclEpoch::CheckProgress() {
  const auto timeout = StallLimit(options_.longest_step, options_.place.n_stages);
  if (meta_out_ != nullptr) SC_RETURN_IF_ERROR(meta_out_->CheckProgress(timeout));
  for (SendRing* ring : {hidden_out_.get(), tokens_out_.get()}) {
    if (ring != nullptr) SC_RETURN_IF_ERROR(ring->CheckProgress(timeout));
  }
  for (ReceiveRing* ring : {hidden_in_.get(), tokens_in_.get()}) {
    if (ring != nullptr) SC_RETURN_IF_ERROR(ring->CheckProgress(timeout));
  }
  return absl::OkStatus();
}

ChannelCounters NcclEpoch::Counters(Channel channel) const {
  ChannelCounters sum;
  const auto add = [&sum](const auto& part) {
    if (part == nullptr) return;
    const ChannelCounters counters = part->counters();
    sum.sent_frames += counters.sent_frames;
    sum.sent_bytes += counters.sent_bytes;
    sum.received_frames += counters.received_frames;
    sum.received_bytes += counters.received_bytes;
  };
  switch (channel) {
    case Channel::kMetadata:
      add(meta_out_);
      add(meta_in_);
      break;
    case Channel::kHidden:
      add(hidden_out_);
      add(hidden_in_);
      break;
    case Channel::kTokens:
      add(tokens_out_);
      add(tokens_in_);
      break;
  }
  return sum;
}

}  // namespace stagecoach::worker
