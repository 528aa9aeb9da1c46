// A worker without a model: a Stage service on a real port with behaviour that the test sets.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/mutex.h"
#include "stagecoach/v1/stage.grpc.pb.h"

namespace stagecoach::router {

// Thread-safe.
class FakeStage final : public v1::Stage::Service {
 public:
  struct Options {
    std::string device = "cpu";
    std::string device_name;
    double layer_ms = 0;    // that each loaded layer takes, as Load reports it
    v1::LayersHeld layers;  // as Describe reports them; 0: none
    std::string numerics = "cpu-1";
    v1::Lease lease;                            // the lease that Describe reports
    std::function<grpc::Status()> on_describe;  // its status is Describe's
    grpc::Status load_status;
    grpc::Status join_status;
    grpc::Status prepare_status;
    bool offers_links = false;
    bool load_blocks = false;  // until the router cancels
    bool answers_hello = true;
    uint64_t kv_bytes = 1000;
    bool knows_kv_dtype = true;
    bool knows_hidden_dtype = true;
    uint64_t kv_since_epoch = 0;  // as Join reports it
    std::vector<uint64_t> kv_block_bytes = {10};
    // Called with each plan, on the stream's own thread. A status that is not OK ends the stream.
    std::function<grpc::Status(const v1::StepPlan&)> on_plan;
    bool has_kv_store = false;  // as Join reports it
    bool has_state_store = false;
    std::string checkpoint_id, layers_id;  // as Load reports them
    // Called with each fetch, likewise; returns the number of blocks to answer with.
    std::function<uint32_t(const v1::KvFetch&)> on_fetch;
    // Called before Stats is answered.
    std::function<void()> on_stats;
  };

  FakeStage() : FakeStage(Options()) {}
  explicit FakeStage(Options options);
  ~FakeStage() override;

  const std::string& address() const { return address_; }

  // Sends to the router; waits for the Step stream to open.
  void Send(const v1::StepResponse& response);
  void SendResult(uint64_t epoch, uint64_t step);
  // Breaks every connection, like a killed process.
  void Die();
  // Blocks until the router has ended the Step stream.
  void WaitForStreamEnd();

  std::optional<v1::LoadRequest> load_request();
  std::optional<v1::JoinRequest> join_request();
  std::vector<v1::PrepareGrammarRequest> grammars();  // every PrepareGrammar request
  std::vector<uint64_t> steps();                      // steps of the received plans

 private:
  using Stream = grpc::ServerReaderWriter<v1::StepResponse, v1::StepRequest>;

  grpc::Status Describe(grpc::ServerContext*, const v1::DescribeRequest*,
                        v1::DescribeResponse* response) override;
  grpc::Status Load(grpc::ServerContext* context, const v1::LoadRequest* request,
                    grpc::ServerWriter<v1::LoadProgress>* writer) override;
  grpc::Status OfferLinks(grpc::ServerContext*, const v1::OfferLinksRequest* request,
                          v1::OfferLinksResponse* response) override;
  grpc::Status Join(grpc::ServerContext*, const v1::JoinRequest* request,
                    v1::JoinResponse* response) override;
  grpc::Status PrepareGrammar(grpc::ServerContext*, const v1::PrepareGrammarRequest* request,
                              v1::PrepareGrammarResponse*) override;
  grpc::Status Step(grpc::ServerContext*, Stream* stream) override;
  grpc::Status Stats(grpc::ServerContext*, const v1::StatsRequest*,
                     v1::StatsResponse* response) override;

  const Options options_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;

  Mutex mutex_;
  CondVar changed_;
  std::optional<v1::LoadRequest> load_request_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::JoinRequest> join_request_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::PrepareGrammarRequest> grammars_ ABSL_GUARDED_BY(mutex_);
  std::vector<uint64_t> steps_ ABSL_GUARDED_BY(mutex_);
  Stream* stream_ ABSL_GUARDED_BY(mutex_) = nullptr;  // while it is open
  bool step_ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace stagecoach::router
