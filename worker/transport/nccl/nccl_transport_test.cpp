// Runs on emulated GPUs, and on real GPUs as transport_nccl_gpu_test.
#include "worker/transport/nccl/nccl_transport.h"

#include <catch2/catch_test_macros.hpp>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "common/status.h"
#include "worker/transport/nccl/testing/nccl_pipeline.h"

namespace stagecoach::worker {
namespace {

constexpr uint64_t kSteps = 120;

bool HasGpus(int32_t n_stages) {
  if (TestDevice(n_stages - 1, n_stages) >= 0) return true;
  WARN("left out: it takes " << n_stages << " GPUs");
  return false;
}

size_t HiddenBytes(uint64_t step) {
  return sizeof(float) * (1 + step * 997 % NcclPipeline::kHiddenFloats);
}
bool Samples(uint64_t step) { return step % 3 != 0; }
// The byte with which stage `stage` fills the hidden states of step `step`.
int Fill(int32_t stage, uint64_t step) { return static_cast<int>((step * 5 + stage) % 251); }
std::string Metadata(uint64_t step) {
  // Every eighth message needs a second slot.
  return std::string(step % 8 == 0 ? kMetaSlotBytes + step : 100 + step, static_cast<char>(step));
}

// Runs one stage's part of kSteps steps, as a stage does. Stores the received hidden states in
// `seen`.
absl::Status RunStage(NcclPipeline& pipeline, int32_t stage, char* seen) {
  pipeline.Use(stage);
  Transport& transport = pipeline.transport(stage);
  DeviceChannels& device = pipeline.device(stage);
  const cudaStream_t compute = pipeline.compute(stage);
  const bool is_first = stage == 0, is_last = stage + 1 == pipeline.n_stages();
  uint64_t sampled_in = 0;
  for (uint64_t step = 1; step <= kSteps; ++step) {
    std::string metadata = Metadata(step);
    if (!is_first) {
      SC_ASSIGN_OR_RETURN(const Message message, transport.Receive(Channel::kMetadata));
      if (message.step != step || message.payload != metadata) {
        return absl::InternalError("other metadata came");
      }
    }
    if (!is_last) SC_RETURN_IF_ERROR(transport.Send(Channel::kMetadata, step, metadata));
    SC_RETURN_IF_ERROR(
        device.Expect(step, is_first ? 0 : HiddenBytes(step), is_first && Samples(step)));
    SC_RETURN_IF_ERROR(device.Stamp(step, StepPoint::kBegun));
    char* const seen_here = seen + step * NcclPipeline::kHiddenFloats * sizeof(float);
    if (is_first && sampled_in > 0) {
      SC_RETURN_IF_ERROR(device.ReceiveTokens(sampled_in, pipeline.sampled(stage)));
      cudaMemcpyAsync(seen_here, pipeline.sampled(stage), NcclPipeline::kSlots * sizeof(int32_t),
                      cudaMemcpyDeviceToHost, compute);
    } else if (!is_first) {
      SC_RETURN_IF_ERROR(
          device.ReceiveHidden(step, pipeline.hidden(stage), HiddenBytes(step)).status());
      cudaMemcpyAsync(seen_here, pipeline.hidden(stage), HiddenBytes(step), cudaMemcpyDeviceToHost,
                      compute);
    }
    if (Samples(step)) sampled_in = step;
    SC_RETURN_IF_ERROR(device.Stamp(step, StepPoint::kInputHere));
    cudaMemsetAsync(pipeline.hidden(stage), Fill(stage, step), HiddenBytes(step), compute);
    SC_RETURN_IF_ERROR(device.Stamp(step, StepPoint::kComputed));
    if (!is_last) {
      SC_RETURN_IF_ERROR(device.SendHidden(step, pipeline.hidden(stage), HiddenBytes(step)));
    } else if (Samples(step)) {
      cudaMemsetAsync(pipeline.sampled(stage), Fill(stage, step),
                      NcclPipeline::kSlots * sizeof(int32_t), compute);
      SC_RETURN_IF_ERROR(device.SendTokens(step, pipeline.sampled(stage)));
    }
    SC_RETURN_IF_ERROR(device.Stamp(step, StepPoint::kEnded));
    // As far as a stage runs ahead.
    if (step % 2 == 0) {
      cudaStreamSynchronize(compute);
      SC_RETURN_IF_ERROR(device.Finish(step).status());
    }
  }
  cudaStreamSynchronize(compute);
  return absl::OkStatus();
}

bool IsFilled(const char* bytes, size_t n, int value) {
  return std::all_of(bytes, bytes + n, [&](char c) { return c == static_cast<char>(value); });
}

// The data received at each stage. Must outlive the pipeline: freeing memory waits for the whole
// device, where a receive may still be waiting.
class Seen {
 public:
  explicit Seen(int32_t n_stages) {
    const size_t n_bytes = (kSteps + 1) * NcclPipeline::kHiddenFloats * sizeof(float);
    for (int32_t i = 0; i < n_stages; ++i) {
      stages_.push_back(kernels::cuda::AllocatePinned(n_bytes).value());
    }
  }
  char* at(int32_t stage) { return stages_[static_cast<size_t>(stage)].As<char>(); }

 private:
  std::vector<kernels::Buffer> stages_;
};

void RunPipeline(NcclPipeline& pipeline, Seen& seen) {
  std::vector<absl::Status> ran(static_cast<size_t>(pipeline.n_stages()));
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < pipeline.n_stages(); ++i) {
    threads.emplace_back([&, i] {
      const auto at = static_cast<size_t>(i);
      ran[at] = RunStage(pipeline, i, seen.at(i));
    });
  }
  for (std::thread& thread : threads) thread.join();
  uint64_t n_wrong = 0;
  for (int32_t i = 0; i < pipeline.n_stages(); ++i) {
    INFO(ran[static_cast<size_t>(i)].ToString());
    REQUIRE(ran[static_cast<size_t>(i)].ok());
    uint64_t sampled_in = 0;
    for (uint64_t step = 1; step <= kSteps; ++step) {
      const char* const here = seen.at(i) + step * NcclPipeline::kHiddenFloats * sizeof(float);
      if (i > 0) {
        n_wrong += !IsFilled(here, HiddenBytes(step), Fill(i - 1, step));
      } else if (sampled_in > 0) {
        n_wrong += !IsFilled(here, NcclPipeline::kSlots * sizeof(int32_t),
                             Fill(pipeline.n_stages() - 1, sampled_in));
      }
      if (Samples(step)) sampled_in = step;
    }
  }
  CHECK(n_wrong == 0);
}

void RequireJoined(NcclPipeline& pipeline, uint64_t epoch) {
  for (const absl::Status& joined : pipeline.Join(epoch)) {
    INFO(joined.ToString());
    REQUIRE(joined.ok());
  }
}

TEST_CASE("nccl: links need SMs and memory of the device") {
  if (!HasGpus(2)) return;
  NcclPipeline pipeline(2);
  CHECK(pipeline.transport(0).links_devices());
}

TEST_CASE("nccl transport: metadata, hidden states and tokens of many steps, with 2 and 3 stages") {
  for (const int32_t n_stages : {2, 3}) {
    if (!HasGpus(n_stages)) continue;
    Seen seen(n_stages);
    NcclPipeline pipeline(n_stages);
    pipeline.transport(1).WarmUp();  // as a spare does; the others connect for the first time
    REQUIRE(pipeline.Prepare().ok());
    RequireJoined(pipeline, 1);
    RunPipeline(pipeline, seen);
    CHECK(pipeline.transport(0).Counters(Channel::kHidden).sent_frames == kSteps);
    CHECK(pipeline.transport(1).Counters(Channel::kHidden).received_frames == kSteps);
    CHECK(pipeline.transport(0).Counters(Channel::kTokens).received_frames == kSteps / 3 * 2);
    CHECK(pipeline.transport(0).Counters(Channel::kMetadata).sent_frames == kSteps + kSteps / 8);
    CHECK(pipeline.transport(0).Description().starts_with("NCCL 2."));
    CHECK(pipeline.transport(0).Description().find("()") == std::string::npos);
  }
}

TEST_CASE("nccl transport: waiting calls end with the epoch, and the next epoch works") {
  if (!HasGpus(2)) return;
  Seen seen(2);
  NcclPipeline pipeline(2);
  REQUIRE(pipeline.Prepare().ok());
  RequireJoined(pipeline, 1);
  // Stage 1 waits for hidden states that nobody sends, stage 0 for tokens, and a thread for
  // metadata.
  pipeline.Use(1);
  REQUIRE(pipeline.device(1).Expect(1, HiddenBytes(1), false).ok());
  REQUIRE(pipeline.device(1).ReceiveHidden(1, pipeline.hidden(1), HiddenBytes(1)).ok());
  pipeline.Use(0);
  REQUIRE(pipeline.device(0).Expect(1, 0, true).ok());
  REQUIRE(pipeline.device(0).ReceiveTokens(1, pipeline.sampled(0)).ok());
  absl::Status received;
  std::thread receiver(
      [&] { received = pipeline.transport(1).Receive(Channel::kMetadata).status(); });
  pipeline.transport(1).Close(absl::CancelledError("enough"));
  receiver.join();
  CHECK(received.message() == "enough");
  cudaStreamSynchronize(pipeline.compute(1));
  cudaStreamSynchronize(pipeline.compute(0));
  CHECK(pipeline.device(1).Finish(1).status().message() == "enough");
  const absl::Status of_peer = pipeline.transport(0).Send(Channel::kMetadata, 1, "late");
  CHECK(absl::IsUnavailable(of_peer));

  RequireJoined(pipeline, 2);
  RunPipeline(pipeline, seen);
}

TEST_CASE("nccl transport: without terms all messages go through the host") {
  if (!HasGpus(2)) return;
  NcclPipeline pipeline(2);
  std::vector<absl::Status> joined(2);
  std::thread other(
      [&] { joined[1] = pipeline.transport(1).Join({.epoch = 1, .stage = 1, .n_stages = 2}); });
  joined[0] = pipeline.transport(0).Join({.epoch = 1, .stage = 0, .n_stages = 2});
  other.join();
  REQUIRE(joined[0].ok());
  REQUIRE(joined[1].ok());
  CHECK(pipeline.transport(0).device() == nullptr);
  REQUIRE(pipeline.transport(0).Send(Channel::kHidden, 1, "rows").ok());
  CHECK(pipeline.transport(1).Receive(Channel::kHidden).value().payload == "rows");
}

}  // namespace
}  // namespace stagecoach::worker
