// Runs against fake stages on real sockets.
#include "router/dispatch/pipeline_setup.h"

#include "catch2/catch_test_macros.hpp"
#include "router/dispatch/load_progress.h"
#include "router/dispatch/testing/fake_stage.h"

namespace stagecoach::router {
namespace {

ModelSpec Spec() {
  ModelSpec spec;
  spec.hidden_size = 8;
  spec.n_heads = 1;
  spec.n_kv_heads = 1;
  spec.head_dim = 8;
  spec.intermediate_size = 8;
  spec.vocab_size = 8;
  spec.max_positions = 1024;
  spec.kv_groups = {{0}};
  spec.layers.resize(6);
  return spec;
}

PipelineOptions Options(const std::vector<const FakeStage*>& stages) {
  PipelineOptions options{.model_dir = "/models/m"};
  options.flags.config.set_max_logprobs(7);
  for (const FakeStage* stage : stages) options.addresses.push_back(stage->address());
  return options;
}

constexpr auto kNoPhases = [](RecoveryPhase) {};

v1::LoadConfig ConfigAt(FakeStage& stage) {
  return stage.load_request().value_or(v1::LoadRequest()).config();
}

TEST_CASE("A load without progress ends the start, and the error names the stage") {
  FakeStage::Options blocked;
  blocked.load_blocks = true;
  FakeStage stage(blocked);
  PipelineOptions options = Options({&stage});
  options.flags.load_stall_limit = std::chrono::seconds(1);
  const absl::Status status = SetUpPipeline(Spec(), options).status();
  CHECK(absl::IsDeadlineExceeded(status));
  CHECK(status.message().find(stage.address()) != absl::string_view::npos);
  CHECK(status.message().find("has made no progress") != absl::string_view::npos);
}

TEST_CASE("every worker gets its layers, its neighbours and the KV pool size") {
  constexpr uint64_t kAhead = uint64_t{1} << 60;  // epoch of a router with a wrong clock
  v1::Lease last_lease;
  last_lease.set_epoch(kAhead);
  FakeStage first({.kv_bytes = 5000});
  FakeStage middle({.lease = last_lease, .kv_bytes = 700});
  FakeStage last({.kv_bytes = 5000});
  PipelineOptions options = Options({&first, &middle, &last});
  options.flags.config.set_dtype(v1::DTYPE_BFLOAT16);
  options.flags.layer_split = {1, 2, 3};
  options.token_table.set_n_logits(17);
  const auto pipeline = SetUpPipeline(Spec(), options);
  INFO(pipeline.status().ToString());
  REQUIRE(pipeline.ok());
  CHECK(pipeline->kv.kv_blocks == 70);
  CHECK(pipeline->kv.max_model_len == 1024);
  CHECK(pipeline->stages[1].layers == LayerRange{1, 2});
  CHECK(pipeline->stages[2].address == last.address());

  const v1::LoadRequest load = *middle.load_request();
  CHECK(load.model_dir() == "/models/m");
  CHECK(load.stage() == 1);
  CHECK(load.n_stages() == 3);
  CHECK(load.first_layer() == 1);
  CHECK(load.n_layers() == 2);
  CHECK(load.config().dtype() == v1::DTYPE_BFLOAT16);
  CHECK(load.config().max_model_len() == 1024);
  CHECK(load.n_local_workers() == 3);
  CHECK(load.config().max_logprobs() == 7);
  CHECK_FALSE(load.has_token_table());
  CHECK(last.load_request()->token_table().n_logits() == 17);

  CHECK(first.join_request()->next_address() == middle.address());
  CHECK(first.join_request()->first_address().empty());
  CHECK(middle.join_request()->next_address() == last.address());
  CHECK(last.join_request()->next_address().empty());
  CHECK(last.join_request()->first_address() == first.address());
  for (FakeStage* stage : {&first, &middle, &last}) {
    CHECK(stage->load_request()->lease().epoch() == kAhead + 1);
    CHECK(stage->join_request()->lease().epoch() == kAhead + 1);
    CHECK(stage->join_request()->lease().holder() == pipeline->lease.holder());
    REQUIRE(stage->join_request()->kv_blocks_size() == 1);
    CHECK(stage->join_request()->kv_blocks(0) == 70);
  }
}

TEST_CASE("workers of other pipelines count as sharing the machine's memory") {
  FakeStage first, last, other;
  PipelineOptions options = Options({&first, &last});
  options.other_addresses = {other.address()};
  REQUIRE(SetUpPipeline(Spec(), options).ok());
  CHECK(first.load_request()->n_local_workers() == 3);
  CHECK(!other.load_request().has_value());
  options.other_addresses = {last.address()};
  const auto twice = SetUpPipeline(Spec(), options);
  CHECK(twice.status().message().find("twice") != std::string::npos);
}

TEST_CASE("a pipeline is restored in a higher epoch, with the KV blocks that were planned") {
  FakeStage first({.kv_bytes = 5000}), last({.kv_bytes = 700});
  const PipelineOptions options = Options({&first, &last});
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  const auto restored = RestorePipeline(Spec(), options, *pipeline, pipeline->lease.epoch(),
                                        std::chrono::seconds(10), {}, kNoPhases);
  INFO(restored.status().ToString());
  REQUIRE(restored.ok());
  const v1::Lease& lease = restored->lease;
  CHECK(lease.holder() == pipeline->lease.holder());
  CHECK(lease.epoch() == pipeline->lease.epoch() + 1);
  CHECK_FALSE(restored->kv_kept);
  for (FakeStage* stage : {&first, &last}) {
    CHECK(stage->load_request()->lease().epoch() == lease.epoch());
    CHECK(stage->load_request()->config().kv_memory_bytes() == 700);
    CHECK(stage->join_request()->lease().epoch() == lease.epoch());
    CHECK(stage->join_request()->kv_blocks(0) == 70);
  }
}

TEST_CASE("the KV cache is kept if every stage has had its memory since before the loss") {
  FakeStage first({.kv_since_epoch = 30}), last({.kv_since_epoch = 40});
  const PipelineOptions options = Options({&first, &last});
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  const auto is_kept = [&](uint64_t lost_epoch) {
    return RestorePipeline(Spec(), options, *pipeline, lost_epoch, std::chrono::seconds(10), {},
                           kNoPhases)
        ->kv_kept;
  };
  CHECK(is_kept(40));
  // The last stage was new in an attempt after the loss of epoch 39.
  CHECK_FALSE(is_kept(39));
}

std::string KvScopeOf(const PipelineOptions& options, const ModelSpec& spec = Spec()) {
  const auto pipeline = SetUpPipeline(spec, options);
  REQUIRE(pipeline.ok());
  return pipeline->kv_scope;
}

TEST_CASE("a pipeline uses the KV store if it was asked for and every stage has it") {
  FakeStage with({.has_kv_store = true, .checkpoint_id = "w"}), without;
  const auto scope = [](const std::vector<const FakeStage*>& stages, const std::string& url,
                        v1::KvDType kv_dtype = v1::KV_DTYPE_AUTO) {
    PipelineOptions options = Options(stages);
    options.flags.config.set_kv_store(url);
    options.flags.config.set_kv_dtype(kv_dtype);
    return KvScopeOf(options);
  };
  CHECK(scope({&with}, "dir:/kv") == "77\ncpu-1\nDTYPE_UNSPECIFIED\n0");
  CHECK(scope({&with}, "dir:/kv", v1::KV_DTYPE_FP8) ==
        "77\ncpu-1\nDTYPE_UNSPECIFIED\n0\nKV_DTYPE_FP8");
  CHECK(scope({&with}, "").empty());
  CHECK(scope({&with, &without}, "dir:/kv").empty());
}

TEST_CASE("a pipeline with recurrent layers uses the KV store if every stage keeps states there") {
  FakeStage with({.has_kv_store = true, .has_state_store = true, .checkpoint_id = "w"});
  FakeStage older({.has_kv_store = true, .checkpoint_id = "w"});
  ModelSpec spec = Spec();
  spec.recurrent.emplace();
  const auto scope = [&](const std::vector<const FakeStage*>& stages) {
    PipelineOptions options = Options(stages);
    options.flags.config.set_host_kv_bytes(1 << 20);
    return KvScopeOf(options, spec);
  };
  CHECK(scope({&with}) == "77\ncpu-1\nDTYPE_UNSPECIFIED\n0\nstates 1");
  CHECK(scope({&with, &older}).empty());
}

TEST_CASE("blocks computed behind rounded hidden states are for the same split only") {
  FakeStage first({.has_kv_store = true, .checkpoint_id = "w"});
  FakeStage second({.has_kv_store = true, .checkpoint_id = "w"});
  const auto scope = [](const std::vector<const FakeStage*>& stages,
                        std::vector<uint32_t> layer_split) {
    PipelineOptions options = Options(stages);
    options.flags.config.set_kv_store("dir:/kv");
    options.flags.config.set_hidden_dtype(v1::HIDDEN_DTYPE_BFLOAT16);
    options.flags.layer_split = std::move(layer_split);
    return KvScopeOf(options);
  };
  const std::string whole = "77\ncpu-1\nDTYPE_UNSPECIFIED\n0";
  CHECK(scope({&first}, {}) == whole);
  CHECK(scope({&first, &second}, {1, 5}) == whole + "\nHIDDEN_DTYPE_BFLOAT16 0 1");
  CHECK(scope({&first, &second}, {2, 4}) == whole + "\nHIDDEN_DTYPE_BFLOAT16 0 2");
}

TEST_CASE("a worker that does not know the type of hidden states holds no stage") {
  FakeStage knows, older({.knows_hidden_dtype = false});
  PipelineOptions options = Options({&knows, &older});
  CHECK(SetUpPipeline(Spec(), options).ok());
  options.flags.config.set_hidden_dtype(v1::HIDDEN_DTYPE_BFLOAT16);
  const absl::Status status = SetUpPipeline(Spec(), options).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message().find(older.address()) != absl::string_view::npos);
  CHECK(status.message().find("--hidden-dtype") != absl::string_view::npos);
}

TEST_CASE("a worker that does not know the type of the KV cache holds no stage") {
  FakeStage knows, older({.knows_kv_dtype = false});
  PipelineOptions options = Options({&knows, &older});
  CHECK(SetUpPipeline(Spec(), options).ok());
  options.flags.config.set_kv_dtype(v1::KV_DTYPE_FP8);
  const absl::Status status = SetUpPipeline(Spec(), options).status();
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message().find(older.address()) != absl::string_view::npos);
  options = Options({&knows});
  options.flags.config.set_kv_dtype(v1::KV_DTYPE_FP8);
  REQUIRE(SetUpPipeline(Spec(), options).ok());
  CHECK(knows.load_request()->config().kv_dtype() == v1::KV_DTYPE_FP8);
  ModelSpec latents = Spec();
  latents.latent.emplace();
  CHECK(absl::IsUnimplemented(SetUpPipeline(latents, options).status()));
}

TEST_CASE("with a KV store, all stages and replacements hold layers of one checkpoint") {
  FakeStage first({.has_kv_store = true, .checkpoint_id = "w"}),
      last({.has_kv_store = true, .checkpoint_id = "w"}),
      other({.has_kv_store = true, .checkpoint_id = "v"}), without;
  PipelineOptions options = Options({&first, &last});
  options.flags.config.set_kv_store("dir:/kv");
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  const auto restore = [&](const FakeStage* replacement) {
    options.addresses[1] = replacement->address();
    return RestorePipeline(Spec(), options, *pipeline, pipeline->lease.epoch(),
                           std::chrono::seconds(10), {}, kNoPhases)
        .status();
  };
  CHECK(restore(&last).ok());
  CHECK(absl::IsFailedPrecondition(restore(&other)));
  CHECK(absl::IsFailedPrecondition(restore(&without)));
}

TEST_CASE("a replacement that read other weights takes no stage's place") {
  FakeStage first({.layers_id = "a"}), last({.layers_id = "b"}), same({.layers_id = "b"}),
      other({.layers_id = "c"}), older;
  PipelineOptions options = Options({&first, &last});
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  const auto restore = [&](const FakeStage& replacement) {
    options.addresses[1] = replacement.address();
    return RestorePipeline(Spec(), options, *pipeline, pipeline->lease.epoch(),
                           std::chrono::seconds(10), {}, kNoPhases)
        .status();
  };
  CHECK(restore(same).ok());
  CHECK(restore(older).ok());
  const absl::Status refused = restore(other);
  CHECK(absl::IsFailedPrecondition(refused));
  CHECK(refused.message().find(other.address()) != absl::string_view::npos);
  CHECK(refused.message().find("files have changed") != absl::string_view::npos);
}

TEST_CASE("a replacement is asked for the numerics of the worker whose place it takes") {
  FakeStage lost({.numerics = "cpu-1 AVX2"}), replacement({.numerics = "cpu-1 AVX-512"});
  const auto pipeline = SetUpPipeline(Spec(), Options({&lost}));
  REQUIRE(pipeline.ok());
  CHECK(lost.load_request()->numerics() == "cpu-1 AVX2");
  REQUIRE(RestorePipeline(Spec(), Options({&replacement}), *pipeline, pipeline->lease.epoch(),
                          std::chrono::seconds(10), {}, kNoPhases)
              .ok());
  CHECK(replacement.load_request()->numerics() == "cpu-1 AVX2");
}

TEST_CASE("a router may have the name of the one before") {
  v1::Lease before;
  before.set_epoch(uint64_t{1} << 60);
  before.set_holder("the one before");
  FakeStage stage({.lease = before, .kv_bytes = 5000});
  PipelineOptions options = Options({&stage});
  options.lease_holder = before.holder();
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  CHECK(pipeline->lease.holder() == before.holder());
  CHECK(pipeline->lease.epoch() == before.epoch() + 1);
}

TEST_CASE("a pipeline whose worker obeys another router is left to it") {
  FakeStage mine;
  const PipelineOptions options = Options({&mine});
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  v1::Lease other;
  other.set_epoch(pipeline->lease.epoch() + 9);
  other.set_holder("other");
  FakeStage theirs({.lease = other});
  const PipelineOptions changed = Options({&theirs});
  const auto restored = RestorePipeline(Spec(), changed, *pipeline, pipeline->lease.epoch(),
                                        std::chrono::seconds(10), {}, kNoPhases);
  CHECK(absl::IsAborted(restored.status()));
}

TEST_CASE("a worker that shuts down is not taken; the router waits for the next one") {
  int n_calls = 0;
  FakeStage stage({.on_describe = [&n_calls] {
    switch (++n_calls) {
      case 2:  // the first one is of the set-up
        return grpc::Status(grpc::StatusCode::UNAVAILABLE, "the worker is shutting down");
      case 3:  // as when its server ends during the call
        return grpc::Status::CANCELLED;
      default:
        return grpc::Status::OK;
    }
  }});
  const PipelineOptions options = Options({&stage});
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  std::vector<RecoveryPhase> phases;
  CHECK(RestorePipeline(Spec(), options, *pipeline, pipeline->lease.epoch(),
                        std::chrono::seconds(10), {},
                        [&phases](RecoveryPhase phase) { phases.push_back(phase); })
            .ok());
  CHECK(n_calls == 4);
  CHECK(phases == std::vector{RecoveryPhase::kLoad, RecoveryPhase::kJoin});
}

TEST_CASE("a worker that does not answer in time cannot be restored") {
  auto gone = std::make_unique<FakeStage>();
  const PipelineOptions options = Options({gone.get()});
  const auto pipeline = SetUpPipeline(Spec(), options);
  REQUIRE(pipeline.ok());
  gone = nullptr;
  const auto restored = RestorePipeline(Spec(), options, *pipeline, pipeline->lease.epoch(),
                                        std::chrono::seconds(1), {}, kNoPhases);
  CHECK(absl::IsDeadlineExceeded(restored.status()));
}

TEST_CASE("link offers go to the stages at the other end of each link") {
  FakeStage first({.offers_links = true}), middle({.offers_links = true}),
      last({.offers_links = true});
  REQUIRE(SetUpPipeline(Spec(), Options({&first, &middle, &last})).ok());
  CHECK(first.join_request()->next_link() == "next of 0");
  CHECK(first.join_request()->previous_link().empty());
  CHECK(first.join_request()->tokens_link() == "tokens");
  CHECK(middle.join_request()->next_link() == "next of 1");
  CHECK(middle.join_request()->previous_link() == "next of 0");
  CHECK(middle.join_request()->tokens_link().empty());
  CHECK(last.join_request()->next_link().empty());
  CHECK(last.join_request()->previous_link() == "next of 1");
  CHECK(last.join_request()->tokens_link() == "tokens");
}

TEST_CASE("if one stage has no links, all messages go through the host") {
  FakeStage first({.offers_links = true}), last;
  REQUIRE(SetUpPipeline(Spec(), Options({&first, &last})).ok());
  CHECK(first.join_request()->next_link().empty());
  CHECK(first.join_request()->tokens_link().empty());
  CHECK(last.join_request()->previous_link().empty());
}

TEST_CASE("step limits come from the options, else from the device type") {
  FakeStage cpu, gpu({.device = "cuda"}), other({.device = "cuda"});
  const auto on_cpu = SetUpPipeline(Spec(), Options({&cpu}));
  REQUIRE(on_cpu.ok());
  CHECK_FALSE(on_cpu->on_gpus);
  CHECK(on_cpu->config.max_batched_tokens() == 512);
  CHECK(on_cpu->config.max_sequences() == 256);
  CHECK(on_cpu->config.max_prefill_chunk() == 512);

  const auto on_gpus = SetUpPipeline(Spec(), Options({&gpu, &other}));
  REQUIRE(on_gpus.ok());
  CHECK(on_gpus->on_gpus);
  CHECK(on_gpus->config.max_prefill_chunk() == 8192);
  CHECK(ConfigAt(other).max_batched_tokens() == 8192);
  CHECK(ConfigAt(other).max_sequences() == 1024);

  PipelineOptions asked = Options({&gpu, &other});
  asked.flags.config.set_max_batched_tokens(1000);
  asked.flags.config.set_max_sequences(3);
  asked.flags.config.set_max_prefill_chunk(2000);
  const auto as_asked = SetUpPipeline(Spec(), asked);
  REQUIRE(as_asked.ok());
  CHECK(as_asked->config.max_prefill_chunk() == 1000);
  CHECK(ConfigAt(gpu).max_batched_tokens() == 1000);
  CHECK(ConfigAt(gpu).max_sequences() == 3);
}

TEST_CASE("a single stage has no neighbours") {
  FakeStage only;
  REQUIRE(SetUpPipeline(Spec(), Options({&only})).ok());
  CHECK(only.load_request()->n_layers() == 6);
  CHECK(only.join_request()->next_address().empty());
  CHECK(only.join_request()->first_address().empty());
}

TEST_CASE("a max_model_len from config.json is lowered to fit the KV pool") {
  FakeStage only({.kv_bytes = 100});
  CHECK(SetUpPipeline(Spec(), Options({&only}))->kv.max_model_len == 160);
}

TEST_CASE("if a worker cannot load, the others stop loading and the error names it") {
  FakeStage first({.load_blocks = true});
  FakeStage last(
      {.load_status = grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such tensor")});
  const absl::Status status = SetUpPipeline(Spec(), Options({&first, &last})).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(status.message() == "stage 1 (" + last.address() + "): cannot load: no such tensor");
  CHECK_FALSE(first.join_request());
}

TEST_CASE("the error names a worker that cannot join") {
  FakeStage first;
  FakeStage last({.join_status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "no route")});
  const absl::Status status = SetUpPipeline(Spec(), Options({&first, &last})).status();
  CHECK(absl::IsUnavailable(status));
  CHECK(status.message() == "stage 1 (" + last.address() + "): cannot join the pipeline: no route");
}

TEST_CASE("a worker with other KV groups is refused") {
  FakeStage only({.kv_block_bytes = {1, 2}});
  const absl::Status status = SetUpPipeline(Spec(), Options({&only})).status();
  CHECK(status.message().find("stage 0 (" + only.address() + ")") != std::string::npos);
}

TEST_CASE("invalid options are refused before any worker is called") {
  FakeStage only;
  PipelineOptions options = Options({&only});
  options.flags.config.set_max_model_len(2000);
  CHECK(absl::IsInvalidArgument(SetUpPipeline(Spec(), options).status()));
  options = Options({&only, &only});
  CHECK(absl::IsInvalidArgument(SetUpPipeline(Spec(), options).status()));
  options = Options({&only});
  options.flags.layer_split = {3, 3};
  CHECK(absl::IsInvalidArgument(SetUpPipeline(Spec(), options).status()));
  CHECK_FALSE(only.load_request());
}

TEST_CASE("progress is the sum over all stages") {
  CHECK(ProgressLine(0, 0, 1) ==
        "loading [                              ]   0%  0 B of 0 B  1 stage");
  CHECK(ProgressLine(1 << 20, 4 << 20, 2) ==
        "loading [#######                       ]  25%  1.0 MiB of 4.0 MiB  2 stages");
  CHECK(ProgressLine(5, 4, 2).find("100%") != std::string::npos);
}

}  // namespace
}  // namespace stagecoach::router
