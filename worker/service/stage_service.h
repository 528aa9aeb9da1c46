// The gRPC service Stage: a worker's life from Load to Join to the step stream, for the router that
// holds the worker's lease.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "common/work_counter.h"
#include "common/work_queue.h"
#include "kernels/ops.h"
#include "stagecoach/v1/stage.grpc.pb.h"
#include "worker/kv_exchange/kv_exchange.h"
#include "worker/model/stage_model.h"
#include "worker/service/kept_memory.h"
#include "worker/service/lease_table.h"
#include "worker/service/tuning_file.h"
#include "worker/stage/stage_executor.h"
#include "worker/transport/transport.h"

namespace stagecoach::worker {

class StepSession;

using ModelLoader = std::function<absl::StatusOr<std::unique_ptr<StageModel>>(
    const StageModelOptions&, kernels::Ops*, const LoadProgressFn&)>;

// Thread-safe: gRPC calls it from many threads. Handlers block their thread, because calls are few
// and long. The step stream is the exception: it must be able to end with a status while it waits
// for the router.
class StageService final : public v1::Stage::WithCallbackMethod_Step<v1::Stage::Service> {
 public:
  // All arguments outlive the service. `load` is StageModel::Load except in tests. `observers`
  // receive the times of the steps. `on_lost` is called once, from any thread, when the process
  // cannot be used any more: an operation failed and Ops::CheckDevice reports that all others will
  // fail, or a thread is blocked for good. `store` holds memory for a replacement of this process;
  // null: its memory ends with it. `tuning_folder` keeps autotuning for later
  // starts; empty: nothing is kept.
  StageService(kernels::Ops* ops, int32_t n_threads, Transport* transport,
               ModelLoader load = StageModel::Load, StepObservers observers = {},
               std::function<void(absl::Status)> on_lost = {}, FdStoreClient* store = nullptr,
               const std::string& tuning_folder = "");
  ~StageService() override;

  // Ends the step stream, if one is open. Call it before the server's Shutdown.
  void Shutdown();

  // Refuses new routers from now on. If a router uses the worker, returns true: the router is told
  // to leave, at once if another worker takes this one's place, or else when its running work has
  // finished. `on_released` is called when it has left. Returns false if no router uses the worker.
  // Call at most once.
  bool BeginDrain(std::function<void()> on_released);

  // Progress of the epoch's steps. Empty if there is no epoch. Never waits for a step.
  std::optional<v1::StepProgress> Progress() const;

  // As the RPC Stats, since the epoch's start.
  v1::StatsResponse ReadStats();

 private:
  // Interval between checks whether the router still waits for a call.
  static constexpr auto kWantedInterval = std::chrono::milliseconds(100);

  grpc::Status Describe(grpc::ServerContext* context, const v1::DescribeRequest* request,
                        v1::DescribeResponse* response) override;
  grpc::Status Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                    grpc::ServerWriter<v1::LoadProgress>* writer) override;
  grpc::Status OfferLinks(grpc::ServerContext* context, const v1::OfferLinksRequest* request,
                          v1::OfferLinksResponse* response) override;
  grpc::Status Join(grpc::ServerContext* context, const v1::JoinRequest* request,
                    v1::JoinResponse* response) override;
  grpc::ServerBidiReactor<v1::StepRequest, v1::StepResponse>* Step(
      grpc::CallbackServerContext* context) override;
  grpc::Status PrepareGrammar(grpc::ServerContext* context,
                              const v1::PrepareGrammarRequest* request,
                              v1::PrepareGrammarResponse* response) override;
  grpc::Status Stats(grpc::ServerContext* context, const v1::StatsRequest* request,
                     v1::StatsResponse* response) override;

  // The current activity. Load and Join each hold their state while they run; a step stream holds
  // kStepping.
  enum class State : uint8_t { kEmpty, kLoading, kLoaded, kJoining, kJoined, kStepping };
  static const char* Name(State state);

  // FAILED_PRECONDITION names the current state if it is not one of `possible`.
  absl::Status CheckStateLocked(std::initializer_list<State> possible, const char* what) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SetStateLocked(State state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Leave(State to);
  // Takes the lease and enters kLoading. If the same router already holds the lease, tells its
  // running work to end and waits until it has.
  absl::Status EnterLoad(const grpc::ServerContext& context, const v1::Lease& lease);
  absl::Status EnterJoin(const v1::Lease& lease);
  absl::StatusOr<std::shared_ptr<StageExecutor>> EnterStep(StepSession* session,
                                                           const v1::Lease& lease);

  // An error if the caller of a long operation no longer wants the result.
  absl::Status StillWanted(const grpc::ServerContext& context, const v1::Lease& lease) const;
  absl::Status DoLoad(grpc::ServerContext& context, const v1::LoadRequest& request,
                      grpc::ServerWriter<v1::LoadProgress>* writer);
  // Returns the last message.
  absl::StatusOr<v1::LoadProgress> LoadModel(grpc::ServerContext& context,
                                             const v1::LoadRequest& request,
                                             grpc::ServerWriter<v1::LoadProgress>* writer);
  // The last message of a load that has succeeded.
  v1::LoadProgress Loaded() const;
  absl::Status DoJoin(const grpc::ServerContext& context, const v1::JoinRequest& request);
  // CANCELLED if the router gives up meanwhile, because neighbours may take long to join.
  absl::Status JoinTransport(const grpc::ServerContext& context, const v1::Lease& lease,
                             const Neighbours& neighbours);
  // Runs the first steps of a model that is loaded.
  absl::StatusOr<v1::MemoryReport> FirstSteps(const v1::LoadRequest& request, int32_t n_links);
  absl::Status PrepareModel();
  absl::Status StartExchange(const v1::LoadConfig& config, uint32_t n_local);
  void SetExchange(std::shared_ptr<KvExchange> exchange);
  // Called after a failure.
  void CheckDevice();
  void SetPhase(void (v1::LoadPhases::*set)(double), double ms);
  // Ends the epoch, if there is one, and waits for its threads while they make progress.
  // UNAVAILABLE if one is blocked; the process cannot be used any more.
  absl::Status StopExecutor(const absl::Status& reason);
  // Waits until the device has done the work of the previous epoch. UNAVAILABLE: it does not end.
  absl::Status AwaitDevice();
  // The worker is lost with this reason, unless the result is destroyed soon: for calls of the
  // driver and of NCCL, which wait for a kernel that never ends.
  std::jthread LoseIfHeld(std::string why);
  void Lose(absl::Status status);  // the process cannot be used any more
  std::shared_ptr<text::GrammarCache> Grammars();
  std::shared_ptr<KvExchange> Exchange() const;

  kernels::Ops* const ops_;
  const int32_t n_threads_;
  Transport* const transport_;
  const ModelLoader load_;
  const StepObservers observers_;
  const uint64_t started_unix_ns_;
  const std::shared_ptr<WorkCounter> work_ = std::make_shared<WorkCounter>();

  mutable Mutex mutex_;
  CondVar state_changed_;
  LeaseTable lease_ ABSL_GUARDED_BY(mutex_);
  uint32_t stage_ ABSL_GUARDED_BY(mutex_) = 0;  // of the last load
  State state_ ABSL_GUARDED_BY(mutex_) = State::kEmpty;
  bool shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<StageExecutor> executor_ ABSL_GUARDED_BY(mutex_);  // of the epoch last joined
  StepSession* session_ ABSL_GUARDED_BY(mutex_) = nullptr;           // of the stream that is open
  std::function<void()> on_released_ ABSL_GUARDED_BY(mutex_);
  std::function<void(absl::Status)> on_lost_ ABSL_GUARDED_BY(mutex_);
  v1::LoadPhases load_phases_ ABSL_GUARDED_BY(mutex_);  // of the last load
  v1::MemoryReport memory_ ABSL_GUARDED_BY(mutex_);     // absent: empty
  std::optional<v1::LayersHeld> layers_ ABSL_GUARDED_BY(mutex_);
  // The last stage has one; null on other stages.
  std::shared_ptr<text::GrammarCache> grammars_ ABSL_GUARDED_BY(mutex_);
  // For the loaded layers. Null: there is no store for KV blocks.
  std::shared_ptr<KvExchange> exchange_ ABSL_GUARDED_BY(mutex_);

  // Accessed only in the state that the call holds.
  v1::LoadRequest loaded_;           // empty: nothing is loaded
  std::vector<uint64_t> kv_blocks_;  // of the cache, by KV group; empty: there is none
  uint64_t n_states_ = 0;            // recurrent states beside the cache
  KeptMemory kept_;
  std::optional<TuningFile> tuning_;
  std::unique_ptr<StageModel> model_;
  WorkQueue compiling_{2, "prepare"};  // as many threads as a router's concurrent requests
};

}  // namespace stagecoach::worker
