// For tests: stages in one process, each with its own transport, stream and a little GPU memory.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "kernels/cuda/device/device_buffer.h"
#include "worker/transport/nccl/nccl_transport.h"
#include "worker/transport/nccl/testing/test_backend.h"
#include "worker/transport/testing/memory_transport.h"

namespace stagecoach::worker {

class NcclPipeline {
 public:
  static constexpr size_t kHiddenFloats = 4096;
  static constexpr size_t kSlots = 16;
  static constexpr size_t kReservedBytes = size_t{1} << 20;
  static constexpr size_t kReservedAgainBytes = size_t{1} << 10;

  // Launches each kernel once, as a stage's warm-up does, so that no first launch happens while a
  // receive waits.
  static void WarmUp(void* memory, cudaStream_t stream) {
    for (const size_t n : {size_t{4}, size_t{64}, size_t{3988}, kHiddenFloats * sizeof(float)}) {
      cudaMemsetAsync(memory, 0, n, stream);
    }
    cudaMemcpyAsync(memory, static_cast<char*>(memory) + 8192, 4096, cudaMemcpyDeviceToDevice,
                    stream);
    cudaStreamSynchronize(stream);
  }

  // Wraps a stage's host transport.
  using WrapHost = std::function<std::unique_ptr<Transport>(std::unique_ptr<Transport>)>;

  explicit NcclPipeline(int32_t n_stages,
                        std::chrono::milliseconds longest_step = std::chrono::seconds(30),
                        const WrapHost& wrap_host = {},
                        const MemoryTransportOptions& host_options = {})
      : stages_(static_cast<size_t>(n_stages)) {
    auto hosts = MakeMemoryTransports(n_stages, host_options);
    for (int32_t i = 0; i < n_stages; ++i) {
      Stage& stage = stages_[static_cast<size_t>(i)];
      stage.device = TestDevice(i, n_stages);
      cudaSetDevice(stage.device);
      cudaStreamCreateWithFlags(&stage.compute, cudaStreamNonBlocking);
      stage.host = std::move(hosts[static_cast<size_t>(i)]);
      if (wrap_host) stage.host = wrap_host(std::move(stage.host));
      stage.hidden = kernels::cuda::AllocateDevice(kHiddenFloats * sizeof(float)).value();
      stage.sampled = kernels::cuda::AllocateDevice(kSlots * sizeof(int32_t)).value();
      WarmUp(stage.hidden.data.get(), stage.compute);
      stage.transport = std::make_unique<NcclTransport>(
          NcclTransportOptions{.device = stage.device,
                               .compute = stage.compute,
                               .load_api = TestNccl,
                               .join_timeout = std::chrono::seconds(60),
                               .longest_step = longest_step,
                               .reserved_bytes = kReservedBytes,
                               .reserved_again_bytes = kReservedAgainBytes,
                               .disturbance_seed = 20261122,
                               .poison = true,
                               .on_progress_checked =
                                   [this] {
                                     ++n_progress_checks_;
                                     n_progress_checks_.notify_all();
                                   }},
          stage.host.get());
    }
  }
  ~NcclPipeline() {
    for (Stage& stage : stages_) stage.transport.reset();
    for (Stage& stage : stages_) {
      cudaSetDevice(stage.device);
      cudaStreamSynchronize(stage.compute);
      cudaStreamDestroy(stage.compute);
    }
  }

  absl::Status Prepare() {
    for (int32_t i = 0; i < n_stages(); ++i) {
      absl::Status prepared = transport(i).Prepare({.stage = i,
                                                    .n_stages = n_stages(),
                                                    .hidden_bytes = kHiddenFloats * sizeof(float),
                                                    .token_bytes = kSlots * sizeof(int32_t)});
      if (!prepared.ok()) return prepared;
    }
    return absl::OkStatus();
  }

  // Does the router's part of a Join.
  std::vector<absl::Status> Join(uint64_t epoch) {
    std::vector<LinkOffer> offers;
    for (int32_t i = 0; i < n_stages(); ++i) {
      auto offer = transport(i).OfferLinks(epoch, i, n_stages());
      if (!offer.ok()) return {offer.status()};
      offers.push_back(*std::move(offer));
    }
    std::vector<absl::Status> joined(stages_.size());
    std::vector<std::thread> threads;
    for (int32_t i = 0; i < n_stages(); ++i) {
      threads.emplace_back([&, i] {
        const auto at = static_cast<size_t>(i);
        joined[at] = transport(i).Join(
            {.epoch = epoch,
             .stage = i,
             .n_stages = n_stages(),
             .next_address = "",
             .first_address = "",
             .next_link = offers[at].next,
             .previous_link = i > 0 ? offers[at - 1].next : "",
             .tokens_link = i == 0 || i + 1 == n_stages() ? offers[0].tokens : ""});
      });
    }
    for (std::thread& thread : threads) thread.join();
    return joined;
  }

  int32_t n_stages() const { return static_cast<int32_t>(stages_.size()); }
  Transport& transport(int32_t i) { return *stages_[static_cast<size_t>(i)].transport; }
  DeviceChannels& device(int32_t i) { return *transport(i).device(); }
  float* hidden(int32_t i) { return stages_[static_cast<size_t>(i)].hidden.As<float>(); }
  int32_t* sampled(int32_t i) { return stages_[static_cast<size_t>(i)].sampled.As<int32_t>(); }
  cudaStream_t compute(int32_t i) { return stages_[static_cast<size_t>(i)].compute; }
  // Returns after `n` further checks by the stages' watchdogs, counted together.
  void AwaitProgressChecks(int64_t n) {
    const int64_t until = n_progress_checks_ + n;
    for (int64_t seen = n_progress_checks_; seen < until; seen = n_progress_checks_) {
      n_progress_checks_.wait(seen);
    }
  }
  void Use(int32_t i) { cudaSetDevice(stages_[static_cast<size_t>(i)].device); }

 private:
  struct Stage {
    int32_t device = 0;
    cudaStream_t compute = nullptr;
    std::unique_ptr<Transport> host;
    kernels::Buffer hidden, sampled;
    std::unique_ptr<Transport> transport;
  };
  std::atomic<int64_t> n_progress_checks_{0};
  std::vector<Stage> stages_;
};

}  // namespace stagecoach::worker
