// Faults between stages, on a fake NCCL.
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "worker/transport/nccl/testing/fake_nccl.h"
#include "worker/transport/nccl/testing/nccl_pipeline.h"

namespace stagecoach::worker {
namespace {

// Resets everything that a test changed in the fake.
struct Restore {
  ~Restore() {
    FreezeFakeNccl(false);
    BlockFakeNcclLaunches(false);
    FailFakeNcclSends(false);
    DelayFakeNccl(0);
    CutFakeNcclReceives(0);
    AllocateInFakeNccl(false);
    OnFakeNcclAbort({});
  }
};

void Start(NcclPipeline& pipeline) {
  REQUIRE(pipeline.Prepare().ok());
  for (const absl::Status& joined : pipeline.Join(1)) REQUIRE(joined.ok());
}

bool Contains(const absl::Status& status, const char* text) {
  return status.message().find(text) != absl::string_view::npos;
}

// Returns the reason with which a stage's epoch ends.
absl::Status AwaitEnd(NcclPipeline& pipeline, int32_t stage) {
  if (stage > 0) return pipeline.transport(stage).Receive(Channel::kMetadata).status();
  // Wait for the tokens of a step that never comes.
  return pipeline.device(0).ReceiveTokens(uint64_t{1} << 40, pipeline.sampled(0));
}

// A host transport that delays the news of its end to its neighbours.
class SlowHost final : public Transport {
 public:
  SlowHost(std::unique_ptr<Transport> inner, std::function<void()> before_close)
      : inner_(std::move(inner)), before_close_(std::move(before_close)) {}
  absl::Status Join(const Neighbours& neighbours) override { return inner_->Join(neighbours); }
  absl::Status Send(Channel channel, uint64_t step, std::string payload) override {
    return inner_->Send(channel, step, std::move(payload));
  }
  absl::StatusOr<Message> Receive(Channel channel) override { return inner_->Receive(channel); }
  ChannelCounters Counters(Channel channel) const override { return inner_->Counters(channel); }
  void Close(absl::Status reason) override {
    before_close_();
    inner_->Close(std::move(reason));
  }

 private:
  const std::unique_ptr<Transport> inner_;
  const std::function<void()> before_close_;
};

TEST_CASE("nccl faults: a stopped neighbour is detected at the deadline") {
  const Restore restore;
  BlockFakeNcclLaunches(GENERATE(false, true));
  NcclPipeline pipeline(2, std::chrono::milliseconds(200));
  Start(pipeline);
  FreezeFakeNccl(true);
  REQUIRE(pipeline.device(1).Expect(1, 16, false).ok());
  const absl::Status end = AwaitEnd(pipeline, 1);
  CHECK(absl::IsDeadlineExceeded(end));
  CHECK(Contains(end, "hidden states from stage 0 to stage 1"));
  CHECK(Contains(end, "step 1"));
  // The neighbour gets the news over the host.
  CHECK(absl::IsUnavailable(AwaitEnd(pipeline, 0)));
}

TEST_CASE("nccl faults: a stopped neighbour is detected while launches wait for it") {
  const Restore restore;
  NcclPipeline pipeline(2, std::chrono::milliseconds(200));
  Start(pipeline);
  FreezeFakeNccl(true);
  REQUIRE(pipeline.device(1).Expect(1, 16, false).ok());
  REQUIRE(pipeline.device(1).ReceiveHidden(1, pipeline.hidden(1), 16).ok());
  // Sends more than the queue of the compute stream holds while the stream waits for the neighbour.
  std::thread launches([&] {
    while (pipeline.device(1).SendTokens(1, pipeline.sampled(1)).ok()) {
    }
  });
  const absl::Status end = AwaitEnd(pipeline, 1);
  CHECK(absl::IsDeadlineExceeded(end));
  launches.join();
}

TEST_CASE("nccl faults: an idle pipeline stays alive when launches block") {
  const Restore restore;
  BlockFakeNcclLaunches(true);
  constexpr std::chrono::milliseconds kLongestStep(200);
  NcclPipeline pipeline(2, kLongestStep);
  Start(pipeline);
  absl::StatusOr<Message> received;
  std::thread receiver([&] { received = pipeline.transport(1).Receive(Channel::kMetadata); });
  // Each stage makes four checks per kLongestStep. Nothing must happen in many times that time.
  pipeline.AwaitProgressChecks(64);
  const absl::Status sent = pipeline.transport(0).Send(Channel::kMetadata, 1, "plan");
  receiver.join();
  INFO(sent.ToString() << ", " << received.status().ToString());
  REQUIRE(received.ok());
  CHECK(received->payload == "plan");
  // A message that is due is still missed.
  REQUIRE(pipeline.device(0).Expect(1, 0, true).ok());
  const absl::Status end = AwaitEnd(pipeline, 1);
  CHECK(absl::IsUnavailable(end));
  CHECK(Contains(end, "tokens from stage 1 to stage 0: nothing was received"));
}

TEST_CASE("nccl faults: a failed call ends the epoch on both sides and aborts all links") {
  const Restore restore;
  NcclPipeline pipeline(2);
  Start(pipeline);
  CHECK(FakeNcclCommunicators() == 6);
  FailFakeNcclSends(true);
  const absl::Status sent = pipeline.transport(0).Send(Channel::kMetadata, 1, "plan");
  CHECK(absl::IsUnavailable(sent));
  CHECK(Contains(sent, "metadata from stage 0 to stage 1: NCCL cannot send"));
  CHECK(absl::IsUnavailable(AwaitEnd(pipeline, 1)));
  REQUIRE(pipeline.Prepare().ok());  // waits for the aborts
  CHECK(FakeNcclCommunicators() == 0);
}

TEST_CASE("nccl faults: neighbours learn of the end before their messages are cut off") {
  const Restore restore;
  std::atomic<bool> armed = false;
  absl::Notification either;  // a message has passed, or an abort has begun
  std::once_flag once;
  const auto notify = [&] { std::call_once(once, [&] { either.Notify(); }); };
  int64_t n_left = 0;
  std::thread sender;
  NcclPipeline pipeline(2, std::chrono::seconds(30), [&](std::unique_ptr<Transport> host) {
    return std::make_unique<SlowHost>(std::move(host), [&] {
      if (!armed.exchange(false)) return;
      // A link that still carries a message has not been aborted.
      sender = std::thread([&] { (void)pipeline.device(0).SendHidden(1, pipeline.hidden(0), 64); });
      either.WaitForNotification();
      n_left = FakeNcclCommunicators();
    });
  });
  Start(pipeline);
  OnFakeNcclAbort(notify);
  REQUIRE(pipeline.device(1).Expect(1, 64, false).ok());
  absl::StatusOr<bool> arrived;
  std::thread receiver([&] {
    arrived = pipeline.device(1).ReceiveHidden(1, pipeline.hidden(1), 64);
    cudaStreamSynchronize(pipeline.compute(1));
    if (arrived.ok()) notify();
  });
  armed = true;
  pipeline.transport(0).Close(absl::CancelledError("enough"));
  sender.join();
  receiver.join();
  CHECK(arrived.ok());
  CHECK(n_left == 6);
}

TEST_CASE("nccl faults: a result computed from a truncated message is rejected at every stage") {
  const Restore restore;
  const int32_t broken_stage = GENERATE(1, 2);
  NcclPipeline pipeline(3);
  Start(pipeline);
  const auto expect = [&](int32_t stage, uint64_t step) {
    REQUIRE(pipeline.device(stage).Expect(step, 64, false).ok());
  };
  const auto run = [&](int32_t stage, uint64_t step) {
    DeviceChannels& device = pipeline.device(stage);
    for (const StepPoint point : {StepPoint::kBegun, StepPoint::kInputHere, StepPoint::kComputed}) {
      REQUIRE(device.Stamp(step, point).ok());
    }
    if (stage > 0) REQUIRE(device.ReceiveHidden(step, pipeline.hidden(stage), 64).ok());
    if (stage < 2) REQUIRE(device.SendHidden(step, pipeline.hidden(stage), 64).ok());
    REQUIRE(device.Stamp(step, StepPoint::kEnded).ok());
    cudaStreamSynchronize(pipeline.compute(stage));
    return device.Finish(step).status();
  };
  // Run more steps than a ring has slots, so that each slot holds an older message, complete and
  // sealed.
  for (uint64_t step = 1; step <= 5; ++step) {
    for (const int32_t stage : {1, 2}) expect(stage, step);
    for (const int32_t stage : {0, 1, 2}) REQUIRE(run(stage, step).ok());
  }
  for (int32_t stage = 0; stage < broken_stage; ++stage) {
    if (stage > 0) expect(stage, 6);
    REQUIRE(run(stage, 6).ok());
  }
  CutFakeNcclReceives(1);
  expect(broken_stage, 6);
  const absl::Status broken = run(broken_stage, 6);
  INFO(broken.ToString());
  CHECK(absl::IsDataLoss(broken));
  CHECK(Contains(broken, "step 6 was cut off"));
}

TEST_CASE("nccl faults: a stage that computed from a truncated message marks its own as broken") {
  // The previous stage has not ended this epoch, as if an abort had overtaken the news of it.
  auto device = kernels::cuda::AllocateDevice(sizeof(uint64_t)).value();
  auto host = kernels::cuda::AllocatePinned(sizeof(uint64_t)).value();
  auto message = kernels::cuda::AllocateDevice(64 + kernels::cuda::kMessageSealBytes).value();
  auto payload = kernels::cuda::AllocateDevice(64).value();
  const kernels::cuda::BrokenStep state{device.As<uint64_t>(), host.As<uint64_t>()};
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaMemsetAsync(device.data.get(), 0, sizeof(uint64_t), stream);
  *host.As<uint64_t>() = 0;
  const auto pass = [&](uint64_t sealed, uint64_t expected) {
    kernels::cuda::SealMessage(stream, payload.data.get(), message.data.get(), 64,
                               {.epoch = 9, .step = sealed}, state);
    kernels::cuda::OpenMessage(stream, message.data.get(), payload.data.get(), 64,
                               {.epoch = 9, .step = expected}, state);
    cudaStreamSynchronize(stream);
    return *host.As<uint64_t>();
  };
  CHECK(pass(1, 1) == 0);
  CHECK(pass(1, 2) == 2);  // the slot still has an older message
  // The next message has the right step, but its contents come from a broken one.
  *host.As<uint64_t>() = 0;
  auto other = kernels::cuda::AllocateDevice(sizeof(uint64_t)).value();
  cudaMemsetAsync(other.data.get(), 0, sizeof(uint64_t), stream);
  kernels::cuda::SealMessage(stream, payload.data.get(), message.data.get(), 64,
                             {.epoch = 9, .step = 3}, state);
  kernels::cuda::OpenMessage(stream, message.data.get(), payload.data.get(), 64,
                             {.epoch = 9, .step = 3}, {other.As<uint64_t>(), host.As<uint64_t>()});
  cudaStreamSynchronize(stream);
  CHECK(*host.As<uint64_t>() == 3);
  cudaStreamDestroy(stream);
}

TEST_CASE("nccl faults: allocating a first message never waits for another link's message") {
  const Restore restore;
  AllocateInFakeNccl(true);
  for (const int32_t n_stages : {2, 3, 4}) {
    NcclPipeline pipeline(n_stages);
    Start(pipeline);
  }
}

TEST_CASE("nccl: releases before 2.24.3 are refused") {
  const absl::Status old = CheckNcclVersion("libnccl.so.2", 22304);
  CHECK(absl::IsUnavailable(old));
  CHECK(Contains(old, "NCCL 2.23.4; 2.24.3 or later is needed"));
  CHECK(CheckNcclVersion("libnccl.so.2", 22403).ok());
}

TEST_CASE("nccl faults: a failure on a ring's thread ends the epoch") {
  const Restore restore;
  NcclPipeline pipeline(2);
  Start(pipeline);
  FailFakeNcclSends(true);
  REQUIRE(pipeline.device(0).SendHidden(1, pipeline.hidden(0), 64).ok());
  CHECK(absl::IsUnavailable(AwaitEnd(pipeline, 1)));
  CHECK(Contains(AwaitEnd(pipeline, 0), "hidden states from stage 0 to stage 1"));
}

TEST_CASE("nccl faults: if one link cannot connect, the others do not wait for the deadline") {
  const Restore restore;
  NcclPipeline pipeline(2);
  REQUIRE(pipeline.Prepare().ok());
  FailFakeNcclSends(true);
  // Each stage has a link that sends and a link that waits for the other stage.
  for (const absl::Status& joined : pipeline.Join(1)) CHECK(Contains(joined, "NCCL cannot send"));
  REQUIRE(pipeline.Prepare().ok());
  CHECK(FakeNcclCommunicators() == 0);
}

TEST_CASE("nccl faults: a stage that waits for other stages' hosts can be cancelled") {
  absl::Notification joining;
  NcclPipeline pipeline(2, std::chrono::seconds(30), {}, {.on_joining = [&] { joining.Notify(); }});
  REQUIRE(pipeline.Prepare().ok());
  absl::Status joined;
  std::thread join(
      [&] { joined = pipeline.transport(0).Join({.epoch = 1, .stage = 0, .n_stages = 2}); });
  joining.WaitForNotification();
  pipeline.transport(0).Close(absl::CancelledError("enough"));
  join.join();
  CHECK(joined.message() == "enough");
}

size_t FreeBytes() {
  size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return free;
}

TEST_CASE("nccl: a second load does not reserve again what NCCL kept from the first") {
  NcclPipeline pipeline(2);
  const size_t at_first = FreeBytes();
  REQUIRE(pipeline.Prepare().ok());
  const size_t messages = at_first - FreeBytes() - 2 * NcclPipeline::kReservedBytes;
  for (const absl::Status& joined : pipeline.Join(1)) REQUIRE(joined.ok());
  CHECK(at_first - FreeBytes() == messages);
  REQUIRE(pipeline.Prepare().ok());
  CHECK(at_first - FreeBytes() == messages + 2 * NcclPipeline::kReservedAgainBytes);
}

TEST_CASE("nccl faults: terms of another epoch are refused") {
  NcclPipeline pipeline(2);
  REQUIRE(pipeline.Prepare().ok());
  const LinkOffer offer = pipeline.transport(0).OfferLinks(7, 0, 2).value();
  std::vector<absl::Status> joined(2);
  const auto join = [&](int32_t stage) {
    joined[static_cast<size_t>(stage)] =
        pipeline.transport(stage).Join({.epoch = 8,
                                        .stage = stage,
                                        .n_stages = 2,
                                        .next_link = stage == 0 ? offer.next : "",
                                        .previous_link = stage == 1 ? offer.next : "",
                                        .tokens_link = offer.tokens});
  };
  std::thread other([&] { join(1); });
  join(0);
  other.join();
  for (const absl::Status& status : joined) CHECK_FALSE(status.ok());
  CHECK((Contains(joined[0], "of epoch 7") || Contains(joined[1], "of epoch 7")));
}

}  // namespace
}  // namespace stagecoach::worker
