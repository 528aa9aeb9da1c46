// Measures the latency of a hop: two stages in one process send hidden states one way and tokens
// back. Each step waits for the tokens of the last one, as in the decode of a single sequence.
// Instead of layers, each stage clears memory for long enough that the host runs ahead, as in a
// serving pipeline. Optionally it copies memory with a kernel that overlaps with its neighbours, as
// the layers' kernels do.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "common/status.h"
#include "kernels/cuda/device/device_buffer.h"
#include "kernels/cuda/elementwise/elementwise.h"
#include "worker/transport/nccl/nccl_transport.h"
#include "worker/transport/testing/memory_transport.h"

namespace stagecoach::worker {
namespace {

struct Stage {
  cudaStream_t compute = nullptr;
  bool copies = false;
  kernels::Buffer hidden, sampled, busy;
  double busy_us = 0;
  std::unique_ptr<Transport> host, transport;
};

constexpr uint64_t kSteps = 1000, kWarmUp = 100;
constexpr size_t kTokenBytes = 256 * sizeof(int32_t);
constexpr size_t kBusyBytes = size_t{1} << 30;

void BeBusy(const Stage& stage) {
  if (stage.copies) {
    constexpr int32_t kMultiprocessors = 128;
    float* const memory = stage.busy.As<float>();
    constexpr int64_t n = kBusyBytes / 2 / sizeof(float);
    kernels::cuda::Convert(
        {.handle = stage.compute, .n_multiprocessors = kMultiprocessors, .overlaps = true},
        {memory, DType::kF32}, {memory + n, DType::kF32}, n);
    return;
  }
  cudaMemsetAsync(stage.busy.data.get(), 0, kBusyBytes, stage.compute);
}

absl::StatusOr<double> MeasureBusyUs(const Stage& stage) {
  constexpr int kRuns = 200;
  SC_ASSIGN_OR_RETURN(const CudaEvent begin, CudaEvent::Make(CudaEvent::Use::kTime));
  SC_ASSIGN_OR_RETURN(const CudaEvent end, CudaEvent::Make(CudaEvent::Use::kTime));
  for (int i = 0; i < kRuns; ++i) BeBusy(stage);
  SC_RETURN_IF_ERROR(begin.Record(stage.compute));
  for (int i = 0; i < kRuns; ++i) BeBusy(stage);
  SC_RETURN_IF_ERROR(end.Record(stage.compute));
  SC_RETURN_IF_ERROR(end.Wait());
  SC_ASSIGN_OR_RETURN(const double ms, end.MsSince(begin));
  return ms * 1000 / kRuns;
}

absl::Status Run(Stage& stage, int32_t index, size_t bytes, bool stamps, double* us_per_step) {
  cudaSetDevice(index);
  DeviceChannels& device = *stage.transport->device();
  const auto stamp = [&](uint64_t step, StepPoint point) {
    return stamps ? device.Stamp(step, point) : absl::OkStatus();
  };
  auto begun = std::chrono::steady_clock::now();
  for (uint64_t step = 1; step <= kSteps; ++step) {
    if (step == kWarmUp) {
      cudaStreamSynchronize(stage.compute);
      begun = std::chrono::steady_clock::now();
    }
    SC_RETURN_IF_ERROR(device.Expect(step, index == 0 ? 0 : bytes, index == 0));
    SC_RETURN_IF_ERROR(stamp(step, StepPoint::kBegun));
    if (index == 0) {
      if (step > 1) {
        SC_RETURN_IF_ERROR(device.ReceiveTokens(step - 1, stage.sampled.As<int32_t>()));
      }
      SC_RETURN_IF_ERROR(stamp(step, StepPoint::kInputHere));
      BeBusy(stage);
      SC_RETURN_IF_ERROR(stamp(step, StepPoint::kComputed));
      SC_RETURN_IF_ERROR(device.SendHidden(step, stage.hidden.As<float>(), bytes));
    } else {
      SC_RETURN_IF_ERROR(device.ReceiveHidden(step, stage.hidden.As<float>(), bytes).status());
      SC_RETURN_IF_ERROR(stamp(step, StepPoint::kInputHere));
      BeBusy(stage);
      SC_RETURN_IF_ERROR(stamp(step, StepPoint::kComputed));
      SC_RETURN_IF_ERROR(device.SendTokens(step, stage.sampled.As<int32_t>()));
    }
    SC_RETURN_IF_ERROR(stamp(step, StepPoint::kEnded));
  }
  cudaStreamSynchronize(stage.compute);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begun;
  *us_per_step = took.count() / (kSteps - kWarmUp);
  return absl::OkStatus();
}

absl::Status Bench(int32_t hidden_size, std::vector<int32_t> rows, bool copies, bool stamps) {
  const size_t most = static_cast<size_t>(*std::max_element(rows.begin(), rows.end()));
  const size_t row_bytes = static_cast<size_t>(hidden_size) * sizeof(float);
  std::vector<Stage> stages(2);
  auto hosts = MakeMemoryTransports(2);
  std::vector<LinkOffer> offers;
  for (int32_t i = 0; i < 2; ++i) {
    Stage& stage = stages[static_cast<size_t>(i)];
    SC_RETURN_IF_ERROR(kernels::cuda::ToStatus(cudaSetDevice(i), "two GPUs are needed"));
    cudaStreamCreateWithFlags(&stage.compute, cudaStreamNonBlocking);
    SC_ASSIGN_OR_RETURN(stage.hidden, kernels::cuda::AllocateDevice(most * row_bytes));
    SC_ASSIGN_OR_RETURN(stage.sampled, kernels::cuda::AllocateDevice(kTokenBytes));
    SC_ASSIGN_OR_RETURN(stage.busy, kernels::cuda::AllocateDevice(kBusyBytes));
    stage.copies = copies;
    SC_ASSIGN_OR_RETURN(stage.busy_us, MeasureBusyUs(stage));
    stage.host = std::move(hosts[static_cast<size_t>(i)]);
    stage.transport = std::make_unique<NcclTransport>(
        NcclTransportOptions{
            .device = i, .compute = stage.compute, .load_api = [] { return LoadNccl(""); }},
        stage.host.get());
    SC_RETURN_IF_ERROR(stage.transport->Prepare(
        {.stage = i, .n_stages = 2, .hidden_bytes = most * row_bytes, .token_bytes = kTokenBytes}));
  }
  for (size_t run = 0; run < rows.size(); ++run) {
    const uint64_t epoch = run + 1;
    const size_t bytes = static_cast<size_t>(rows[run]) * row_bytes;
    SC_ASSIGN_OR_RETURN(const LinkOffer offer, stages[0].transport->OfferLinks(epoch, 0, 2));
    std::vector<absl::Status> done(2);
    std::vector<double> us(2);
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < 2; ++i) {
      threads.emplace_back([&, i] {
        const auto at = static_cast<size_t>(i);
        done[at] = stages[at].transport->Join({.epoch = epoch,
                                               .stage = i,
                                               .n_stages = 2,
                                               .next_address = "",
                                               .first_address = "",
                                               .next_link = i == 0 ? offer.next : "",
                                               .previous_link = i == 1 ? offer.next : "",
                                               .tokens_link = offer.tokens});
        if (done[at].ok()) done[at] = Run(stages[at], i, bytes, stamps, &us[at]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const absl::Status& status : done) SC_RETURN_IF_ERROR(status);
    const double busy_us = stages[0].busy_us + stages[1].busy_us;
    fmt::print(
        "{{\"rows\": {}, \"bytes\": {}, \"us_a_step\": {:.2f}, \"us_busy\": {:.2f}, "
        "\"us_hidden_and_tokens\": {:.2f}, \"links\": \"{}\"}}\n",
        rows[run], bytes, us[0], busy_us, us[0] - busy_us, stages[1].transport->Description());
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace stagecoach::worker

int main(int argc, char** argv) {
  // The same settings as in a worker.
  setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  int32_t hidden_size = 4096;
  std::vector<int32_t> rows = {1, 16, 64, 256, 2048};
  bool copies = false, stamps = false;
  CLI::App app("Measures the time of a hop between two GPUs.", "transport_nccl_bench");
  app.add_option("--hidden-size", hidden_size, "Floats per row")->capture_default_str();
  app.add_option("--rows", rows, "Rows per step")->delimiter(',');
  app.add_flag("--copies", copies, "Stages copy memory instead of clearing it");
  app.add_flag(
      "--stamps", stamps,
      "Steps record the time at which they reach each point, as the steps of a real stage do");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = stagecoach::worker::Bench(hidden_size, rows, copies, stamps);
  if (!status.ok()) fmt::print(stderr, "error: {}\n", std::string(status.message()));
  return status.ok() ? 0 : 1;
}
