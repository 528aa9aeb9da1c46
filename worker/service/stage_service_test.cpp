#include "worker/service/stage_service.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/kv_block.h"
#include "common/temp_dir.h"
#include "worker/service/testing/toy_worker.h"
#include "worker/stage/testing/late_ops.h"

namespace stagecoach::worker {
namespace {

v1::TokenTable Table(int32_t n_logits) {
  v1::TokenTable table;
  table.set_kinds(std::string("\1\1", 2));
  for (uint32_t offset : {0, 1, 2}) table.add_offsets(offset);
  table.set_bytes("ab");
  table.set_n_logits(n_logits);
  return table;
}

TEST_CASE("a stage with a vocabulary compiles a grammar in advance") {
  ToyWorker worker;
  const auto prepare = [&](const std::string& regex) {
    v1::PrepareGrammarRequest request;
    *request.mutable_lease() = LeaseFor(1);
    request.mutable_grammar()->set_kind(v1::GRAMMAR_KIND_REGEX);
    request.mutable_grammar()->set_source(regex);
    grpc::ClientContext context;
    v1::PrepareGrammarResponse response;
    return worker.stub().PrepareGrammar(&context, request, &response).error_code();
  };
  CHECK(prepare("a+") == grpc::StatusCode::FAILED_PRECONDITION);
  v1::LoadRequest request = LoadRequestFor(0, 1);
  REQUIRE(Load(worker, request).status.ok());
  CHECK(prepare("a+") == grpc::StatusCode::FAILED_PRECONDITION);
  *request.mutable_token_table() = Table(kToyVocab);
  REQUIRE(Load(worker, request).status.ok());
  CHECK(prepare("a+") == grpc::StatusCode::OK);
  CHECK(prepare("c") == grpc::StatusCode::INVALID_ARGUMENT);
  *request.mutable_token_table() = Table(kToyVocab + 1);
  CHECK(Load(worker, request).status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_CASE("a worker starts from the tuning of the one before") {
  const TempDir folder;
  const TuningFile file(folder.path(), *MakeLateOps());
  for (const std::string rehearsals : {"1", "2", "3"}) {
    ToyWorker worker(MakeLateOps(), {}, folder.path());
    REQUIRE(Load(worker, LoadRequestFor(0, 1)).status.ok());
    CHECK(file.Read().value_or("") == rehearsals);
  }
  ToyWorker elsewhere(MakeLateOps(), {}, "/dev/null/folder");
  CHECK(Load(elsewhere, LoadRequestFor(0, 1)).status.ok());
}

TEST_CASE("an unused worker can leave at once and accepts no router afterwards") {
  auto workers = LoadedWorkers(1);
  CHECK_FALSE(workers[0]->service().BeginDrain([] { FAIL("nobody held it"); }));
  CHECK(Join(workers, 0, 1).error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("a draining worker tells its router, keeps serving, and is released with the stream") {
  auto workers = LoadedWorkers(2);
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  std::promise<void> released;
  std::future<void> when_released = released.get_future();
  REQUIRE(workers[0]->service().BeginDrain([&] { released.set_value(); }));
  CHECK(streams[0]->HearsDraining());
  RequireServes(streams, 1);
  CHECK(when_released.wait_for(std::chrono::seconds(0)) == std::future_status::timeout);
  CHECK(streams[0]->Finish().ok());
  when_released.wait();
}

TEST_CASE("every stage reports its progress, with and without work") {
  auto workers = LoadedWorkers(2);
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  for (auto& stream : streams) {
    const auto progress = stream->NextProgress();
    REQUIRE(progress);
    CHECK(progress->begun() == 0);
    CHECK(progress->activity() == v1::STEP_ACTIVITY_IDLE);
  }
  RequireServes(streams, 1);
  for (auto& stream : streams) {
    std::optional<v1::StepProgress> progress;
    do progress = stream->NextProgress();
    while (progress && progress->done() == 0);
    REQUIRE(progress);
    CHECK(progress->begun() >= progress->done());
    CHECK(progress->received() >= progress->begun());
    CHECK(stream->NextProgress());
  }
}

TEST_CASE("a device that does not finish an epoch ends its worker, not the others") {
  std::atomic<bool> held = false;
  std::vector<std::unique_ptr<ToyWorker>> workers;
  workers.push_back(std::make_unique<ToyWorker>(MakeLateOps(nullptr, &held)));
  workers.push_back(std::make_unique<ToyWorker>());
  for (uint32_t i = 0; i < 2; ++i) REQUIRE(Load(*workers[i], LoadRequestFor(i, 2)).status.ok());
  JoinAll(workers, 1);
  held = true;
  auto joined = std::async(std::launch::async, [&] { return Join(workers, 0, 2); });
  workers[0]->device_lost().WaitForNotification();
  CHECK_FALSE(workers[1]->device_lost().HasBeenNotified());
  held = false;
  held.notify_all();
  workers[0]->Die();
  CHECK_FALSE(joined.get().ok());
}

TEST_CASE("a worker describes itself") {
  ToyWorker worker;
  grpc::ClientContext context;
  v1::DescribeResponse response;
  REQUIRE(worker.stub().Describe(&context, {}, &response).ok());
  CHECK_FALSE(response.version().empty());
  CHECK(response.device() == "cpu");
  CHECK(response.numerics() == "reference");
  CHECK(response.pid() > 0);
  CHECK(response.memory_available_bytes() > 0);
  CHECK(response.memory_available_bytes() <= response.memory_total_bytes());
}

TEST_CASE("loading streams progress and ends with a memory report") {
  ToyWorker worker;
  v1::LoadRequest request = LoadRequestFor(0, 1);
  request.mutable_config()->set_kv_memory_bytes(1 << 20);
  const Loaded loaded = Load(worker, request);
  REQUIRE(loaded.status.ok());
  REQUIRE_FALSE(loaded.progress.empty());
  for (size_t i = 0; i + 1 < loaded.progress.size(); ++i) {
    CHECK_FALSE(loaded.progress[i].has_report());
  }
  const v1::MemoryReport& report = loaded.progress.back().report();
  CHECK(report.weights_bytes() == 1000);
  CHECK(report.kv_bytes() == 1 << 20);
  REQUIRE(report.kv_block_bytes_size() == 2);
  CHECK(report.kv_block_bytes(0) == 512);
}

TEST_CASE("a router that loads the same layers again keeps them, another router loads anew") {
  ToyWorker worker;
  const auto load = [&worker](const v1::Lease& lease, uint64_t kv_bytes,
                              v1::KvDType kv_dtype = v1::KV_DTYPE_AUTO,
                              v1::HiddenDType hidden_dtype = v1::HIDDEN_DTYPE_FLOAT32) {
    v1::LoadRequest request = LoadRequestFor(0, 1, lease);
    request.mutable_config()->set_kv_memory_bytes(kv_bytes);
    request.mutable_config()->set_kv_dtype(kv_dtype);
    request.mutable_config()->set_hidden_dtype(hidden_dtype);
    const Loaded loaded = Load(worker, request);
    REQUIRE(loaded.status.ok());
    CHECK(loaded.progress.back().report().kv_dtype() == kv_dtype);
    CHECK(loaded.progress.back().report().hidden_dtype() == hidden_dtype);
    return loaded.progress.back().report().kv_bytes();
  };
  CHECK(load(LeaseFor(1), 1 << 20) == 1 << 20);
  CHECK(load(LeaseFor(2), 2 << 20) == 1 << 20);  // kept, with the memory found before
  CHECK(load(LeaseFor(3, "other"), 2 << 20) == 2 << 20);
  CHECK(load(LeaseFor(4, "other"), 3 << 20, v1::KV_DTYPE_FP8) == 3 << 20);
  CHECK(load(LeaseFor(5, "other"), 4 << 20, v1::KV_DTYPE_FP8, v1::HIDDEN_DTYPE_BFLOAT16) ==
        4 << 20);
}

TEST_CASE("a worker does not take the place of one that computed with other numerics") {
  ToyWorker worker;
  v1::LoadRequest request = LoadRequestFor(0, 1);
  request.set_numerics("cpu-1 AVX2");
  const grpc::Status refused = Load(worker, request).status;
  CHECK(refused.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(refused.error_message().find("\"reference\"") != std::string::npos);
  CHECK(refused.error_message().find("\"cpu-1 AVX2\"") != std::string::npos);
  request.set_numerics("reference");
  CHECK(Load(worker, request).status.ok());
}

TEST_CASE("without a KV size, the worker takes no more than the sequences can use") {
  ToyWorker worker;
  const Loaded loaded = Load(worker, LoadRequestFor(0, 1));
  REQUIRE(loaded.status.ok());
  CHECK(loaded.progress.back().report().kv_bytes() <= 6u * 10 * 1024);
}

TEST_CASE("a failed load gives the reason, and the worker can load again") {
  ToyWorker worker;
  v1::LoadRequest request = LoadRequestFor(0, 1);
  request.set_model_dir("broken");
  Loaded loaded = Load(worker, request);
  CHECK(loaded.status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(loaded.status.error_message() == "three tensors are missing");
  request.set_model_dir("throws");
  loaded = Load(worker, request);
  CHECK(loaded.status.error_code() == grpc::StatusCode::INTERNAL);
  CHECK(loaded.status.error_message() == "no more threads");
  request = LoadRequestFor(0, 1);
  request.mutable_config()->set_kv_memory_bytes(1000);
  loaded = Load(worker, request);
  CHECK(loaded.status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
  CHECK(loaded.status.error_message().find("1024") != std::string::npos);
  request.mutable_config()->set_max_sequences(0);
  CHECK(Load(worker, request).status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(Load(worker, LoadRequestFor(0, 1)).status.ok());
}

TEST_CASE("only a lost device counts as lost, other failures do not") {
  std::atomic<bool> lost = false;
  std::vector<std::unique_ptr<ToyWorker>> workers;
  workers.push_back(std::make_unique<ToyWorker>(MakeLateOps(&lost)));
  ToyWorker& worker = *workers[0];
  v1::LoadRequest broken = LoadRequestFor(0, 1);
  broken.set_model_dir("broken");
  CHECK_FALSE(Load(worker, broken).status.ok());
  REQUIRE(Load(worker, LoadRequestFor(0, 1)).status.ok());
  CHECK_FALSE(Join(workers, 0, 1, kMaxKvBlocks + 1).ok());
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  streams[0]->HangUp();
  streams[0]->Wait();
  CHECK_FALSE(worker.device_lost().HasBeenNotified());

  JoinAll(workers, 2);  // waits until the worker has noticed the end
  SECTION("while it loads") {
    lost = true;
    *broken.mutable_lease() = LeaseFor(2);
    CHECK_FALSE(Load(worker, broken).status.ok());
  }
  SECTION("while it joins") {
    lost = true;
    CHECK_FALSE(Join(workers, 0, 3, kMaxKvBlocks + 1).ok());
  }
  SECTION("in a step") {
    streams = OpenAll(workers, 2);
    lost = true;
    REQUIRE(streams[0]->Send(v1::StepPlan()));  // a plan of another epoch
    CHECK_FALSE(streams[0]->Wait().ok());
  }
  worker.device_lost().WaitForNotification();
}

TEST_CASE("a load whose caller has left ends, and the next router gets the worker") {
  ToyWorker worker;
  EndlessLoad endless(worker);
  CHECK(Load(worker, LoadRequestFor(0, 1)).status.error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  endless.context.TryCancel();
  CHECK(endless.End() == grpc::StatusCode::CANCELLED);
  while (Load(worker, LoadRequestFor(0, 1)).status.error_code() ==
         grpc::StatusCode::FAILED_PRECONDITION) {
  }
  CHECK(Load(worker, LoadRequestFor(0, 1)).status.ok());
}

TEST_CASE("a join whose caller has left ends, and the next router gets the worker") {
  std::vector<std::unique_ptr<ToyWorker>> workers;
  for (uint32_t stage : {0, 1}) {
    workers.push_back(std::make_unique<ToyWorker>(
        kernels::MakeReferenceOps(), GrpcTransportOptions{.join_timeout = std::chrono::hours(1)}));
    REQUIRE(Load(*workers[stage], LoadRequestFor(stage, 2)).status.ok());
  }
  grpc::ClientContext context;
  grpc::Status joined;
  std::thread router([&] {
    v1::JoinResponse response;
    // The other stage never joins.
    joined = workers[0]->stub().Join(&context, JoinRequestFor(workers, 0, 1), &response);
  });
  const auto is_joining = [&] {
    return StepStream(*workers[0], 1).Wait().error_message().find("is joining") !=
           std::string::npos;
  };
  while (!is_joining()) {
  }
  context.TryCancel();
  router.join();
  CHECK(joined.error_code() == grpc::StatusCode::CANCELLED);
  while (is_joining()) {
  }
  JoinAll(workers, 3);
  auto streams = OpenAll(workers, 3);
  RequireServes(streams, 3);
}

TEST_CASE("a worker that shuts down stops loading") {
  ToyWorker worker;
  EndlessLoad endless(worker);
  worker.service().Shutdown();
  CHECK(endless.End() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("calls in the wrong order are FAILED_PRECONDITION and say what comes first") {
  std::vector<std::unique_ptr<ToyWorker>> workers;
  workers.push_back(std::make_unique<ToyWorker>());
  grpc::Status status = Join(workers, 0, 1);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find("call Load first") != std::string::npos);
  REQUIRE(Load(*workers[0], LoadRequestFor(0, 1)).status.ok());
  status = StepStream(*workers[0], 1).Wait();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find("call Join first") != std::string::npos);
  JoinAll(workers, 1);
  status = StepStream(*workers[0], 2).Wait();
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find("epoch 2") != std::string::npos);

  JoinAll(workers, 3);
  auto streams = OpenAll(workers, 3);
  CHECK(Load(*workers[0], LoadRequestFor(0, 1, LeaseFor(3))).status.error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(StepStream(*workers[0], 3).Wait().error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  RequireServes(streams, 3);
}

TEST_CASE("too many KV blocks are refused, and the error says what to lower") {
  std::vector<std::unique_ptr<ToyWorker>> workers = LoadedWorkers(1);
  const grpc::Status status = Join(workers, 0, 1, kMaxKvBlocks + 1);
  CHECK(status.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(status.error_message().find(absl::StrCat(kMaxKvBlocks)) != std::string::npos);
  CHECK(status.error_message().find("lower --kv-memory") != std::string::npos);
  JoinAll(workers, 1);
}

TEST_CASE("a worker whose router never opened a stream can load again") {
  auto workers = LoadedWorkers(1);
  JoinAll(workers, 1);
  CHECK(Load(*workers[0], LoadRequestFor(0, 1)).status.ok());
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  RequireServes(streams, 1);
}

TEST_CASE("two workers serve, end with their stream and serve the next epoch") {
  auto workers = LoadedWorkers(2);
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    JoinAll(workers, epoch);
    auto streams = OpenAll(workers, epoch);
    RequireServes(streams, epoch);
    if (epoch == 2) {
      for (auto& stream : streams) stream->HangUp();  // as if the router was killed
    } else {
      CHECK(streams[0]->Finish().ok());
    }
  }
}

TEST_CASE("stats come from the stage") {
  auto workers = LoadedWorkers(1);
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  RequireServes(streams, 1);
  CHECK(streams[0]->Finish().ok());  // a stage counts a step after it has sent the result
  grpc::ClientContext context;
  v1::StatsResponse stats;
  REQUIRE(workers[0]->stub().Stats(&context, {}, &stats).ok());
  CHECK(stats.steps() > 0);
  CHECK(stats.tokens() == 18 + 11);
  CHECK(stats.cpu_s() > 0);
}

v1::Lease LeaseOf(ToyWorker& worker) {
  grpc::ClientContext context;
  v1::DescribeResponse response;
  REQUIRE(worker.stub().Describe(&context, {}, &response).ok());
  return response.lease();
}

TEST_CASE("a router with a higher epoch gets a serving worker at once; the old router is told") {
  auto workers = LoadedWorkers(2);
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  RequireServes(streams, 1);
  const v1::Lease second = LeaseFor(2, "second");
  REQUIRE(Load(*workers[0], LoadRequestFor(0, 2, second)).status.ok());
  const grpc::Status told = streams[0]->Wait();
  CHECK(told.error_code() == grpc::StatusCode::ABORTED);
  CHECK(told.error_message().find("router second of epoch 2") != std::string::npos);
  CHECK_FALSE(streams[1]->Wait().ok());  // its neighbour is gone
  // No work of the first router continues, so no pipeline mixes layers of both.
  const grpc::Status join = Join(workers, 0, 1);
  CHECK(join.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(join.error_message().find("router second of epoch 2") != std::string::npos);
  CHECK(Load(*workers[0], LoadRequestFor(0, 2)).status.error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(LeaseOf(*workers[0]).holder() == "second");
  CHECK(LeaseOf(*workers[1]).holder() == "router");
}

TEST_CASE("two routers that load the same workers never get layers of both mixed") {
  auto workers = LoadedWorkers(2);  // loaded by the first router
  REQUIRE(Load(*workers[0], LoadRequestFor(0, 2, LeaseFor(2, "second"))).status.ok());
  const grpc::Status status = Join(workers, 0, 1);
  CHECK(status.error_code() == grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(status.error_message().find("second") != std::string::npos);
}

TEST_CASE("a router with a higher epoch ends a load and a join in progress") {
  const v1::Lease second = LeaseFor(2, "second");
  std::vector<std::unique_ptr<ToyWorker>> workers;
  workers.push_back(std::make_unique<ToyWorker>(
      kernels::MakeReferenceOps(), GrpcTransportOptions{.join_timeout = std::chrono::hours(1)}));
  SECTION("a load in progress") {
    EndlessLoad endless(*workers[0]);
    REQUIRE(Load(*workers[0], LoadRequestFor(0, 1, second)).status.ok());
    CHECK(endless.End() == grpc::StatusCode::ABORTED);
  }
  SECTION("a join in progress") {
    workers.push_back(std::make_unique<ToyWorker>());
    REQUIRE(Load(*workers[0], LoadRequestFor(0, 2)).status.ok());
    auto joined = std::async(std::launch::async, [&] { return Join(workers, 0, 1); });
    while (StepStream(*workers[0], 1).Wait().error_message().find("is joining") ==
           std::string::npos) {
    }
    REQUIRE(Load(*workers[0], LoadRequestFor(0, 1, second)).status.ok());
    CHECK(joined.get().error_code() == grpc::StatusCode::ABORTED);
  }
}

TEST_CASE("a router that does not read its stream cannot keep the worker") {
  auto workers = LoadedWorkers(1);
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  RequireServes(streams, 1);  // after this it reads nothing
  REQUIRE(Load(*workers[0], LoadRequestFor(0, 1, LeaseFor(2, "second"))).status.ok());
}

TEST_CASE("calls without the lease change nothing") {
  auto workers = LoadedWorkers(1);
  JoinAll(workers, 1);
  const auto refused = [](const grpc::Status& status) {
    return status.error_code() == grpc::StatusCode::FAILED_PRECONDITION;
  };
  const v1::Lease other = LeaseFor(1, "other");
  CHECK(refused(StepStream(*workers[0], other).Wait()));
  CHECK(refused(Load(*workers[0], LoadRequestFor(0, 1, other)).status));
  v1::OfferLinksRequest offer;
  *offer.mutable_lease() = LeaseFor(9, "other");
  v1::OfferLinksResponse links;
  grpc::ClientContext offer_context;
  CHECK(refused(workers[0]->stub().OfferLinks(&offer_context, offer, &links)));
  v1::PrepareGrammarRequest grammar;
  *grammar.mutable_lease() = other;
  v1::PrepareGrammarResponse prepared;
  grpc::ClientContext grammar_context;
  CHECK(refused(workers[0]->stub().PrepareGrammar(&grammar_context, grammar, &prepared)));
  auto streams = OpenAll(workers, 1);
  RequireServes(streams, 1);
}

TEST_CASE("an invalid plan ends the streams with a status, and the workers serve again") {
  auto workers = LoadedWorkers(2);
  JoinAll(workers, 1);
  {
    auto streams = OpenAll(workers, 1);
    v1::StepPlan plan;
    plan.set_epoch(1);
    plan.set_step(1);
    plan.add_registrations()->set_slot(77);
    REQUIRE(streams[0]->Send(plan));
    const grpc::Status first = streams[0]->Wait();
    CHECK(first.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
    CHECK(first.error_message().find("step 1: slot 77") != std::string::npos);
    const grpc::Status last = streams[1]->Wait();
    CHECK(last.error_code() == grpc::StatusCode::UNAVAILABLE);
    CHECK(last.error_message().find("stage 0") != std::string::npos);
  }
  JoinAll(workers, 2);
  auto streams = OpenAll(workers, 2);
  RequireServes(streams, 2);
}

TEST_CASE("when a worker dies, the other ends its stream with UNAVAILABLE and names it") {
  auto workers = LoadedWorkers(2);
  JoinAll(workers, 1);
  auto streams = OpenAll(workers, 1);
  RequireServes(streams, 1);
  const std::string gone = workers[1]->address();
  workers[1]->Die();
  const grpc::Status status = streams[0]->Wait();
  CHECK(status.error_code() == grpc::StatusCode::UNAVAILABLE);
  CHECK(status.error_message().find("stage 1") != std::string::npos);
  streams[1]->Wait();
}

}  // namespace
}  // namespace stagecoach::worker
