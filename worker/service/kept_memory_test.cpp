#include "worker/service/kept_memory.h"

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <utility>
#include <vector>

#include "common/fd_store/fd_store_session.h"
#include "common/temp_dir.h"
#include "kernels/reference/reference_ops.h"

namespace stagecoach::worker {
namespace {

constexpr const char* kConfig =
    R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 16,
  "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
  "head_dim": 8, "max_position_embeddings": 64, "torch_dtype": "float32"})";

v1::LoadRequest Request(const TempDir& dir) {
  v1::LoadRequest request;
  request.set_model_dir(dir.path());
  request.set_n_stages(1);
  request.set_n_layers(2);
  v1::LoadConfig& config = *request.mutable_config();
  config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.set_max_batched_tokens(32);
  config.set_max_sequences(2);
  config.set_max_model_len(64);
  return request;
}

// One of the processes that follow each other at a stage's place.
class StageProcess {
 public:
  explicit StageProcess(FdStore* store) {
    auto [mine, theirs] = *MakePacketSockets();
    session_ = std::make_unique<FdStoreSession>(std::move(theirs), store);
    client_ = std::make_unique<FdStoreClient>(std::move(mine));
    kept_ = std::make_unique<KeptMemory>(ops_.get(), client_.get());
  }

  void Load(const v1::LoadRequest& request) {
    kept_->BeginLoad(request);
    auto model = StageModel::Load({.model_dir = request.model_dir(),
                                   .n_layers = 2,
                                   .is_first = true,
                                   .is_last = true,
                                   .config = request.config(),
                                   .weights = kept_->Weights()},
                                  ops_.get(), nullptr);
    INFO(model.status());
    REQUIRE(model.ok());
    model_ = *std::move(model);
    v1::MemoryReport report;
    report.set_largest_step_ms(7);
    kept_->KeepWeights(report);
  }
  void AllocateKv(uint64_t epoch, uint64_t n_blocks = 4) {
    const std::vector<uint64_t> blocks = {n_blocks};
    REQUIRE(model_->AllocateKv(blocks, kept_->Kv(blocks, epoch)).ok());
  }
  // Logits after `ids`, the first of which has this position. The stage learns the slot's blocks.
  std::vector<float> Step(const std::vector<int32_t>& ids, int32_t position) {
    const std::vector<kernels::StepSeq> seqs = {
        {.slot = 0, .position = position, .n_tokens = static_cast<int32_t>(ids.size())}};
    const std::vector<kernels::NewBlock> blocks = {{0, 0, 0, 2}};
    model_->Forward({.seqs = seqs,
                     .token_ids = ids,
                     .new_blocks = blocks,
                     .n_tokens = static_cast<int32_t>(ids.size())},
                    model_->hidden_buffer(), std::nullopt);
    const std::vector<int32_t> last = {static_cast<int32_t>(ids.size()) - 1};
    const float* const logits = model_->Logits(model_->hidden_buffer(), last);
    return {logits, logits + 50};
  }

  KeptMemory& kept() { return *kept_; }

 private:
  const std::unique_ptr<kernels::Ops> ops_ = kernels::MakeReferenceOps();
  std::unique_ptr<FdStoreSession> session_;
  std::unique_ptr<FdStoreClient> client_;
  std::unique_ptr<KeptMemory> kept_;
  std::unique_ptr<StageModel> model_;
};

TEST_CASE("Kept memory: the next process of a stage goes on with the weights and the KV cache") {
  TempDir dir;
  dir.Write("config.json", kConfig);
  FdStore store;
  std::vector<float> expected;
  {
    StageProcess first(&store);
    first.Load(Request(dir));
    CHECK(first.kept().mapped_weights() == nullptr);
    first.AllocateKv(/*epoch=*/5);
    CHECK(first.kept().kv_since() == 5);
    first.Step({7, 49, 0}, 0);
    expected = first.Step({3}, 3);
  }
  StageProcess second(&store);
  second.Load(Request(dir));
  REQUIRE(second.kept().mapped_weights() != nullptr);
  CHECK(second.kept().mapped_weights()->report().largest_step_ms() == 7);
  second.AllocateKv(/*epoch=*/6);
  CHECK(second.kept().kv_since() == 5);
  CHECK(second.Step({3}, 3) == expected);
}

TEST_CASE("Kept memory: what another load or size left is neither used nor kept") {
  TempDir dir;
  dir.Write("config.json", kConfig);
  FdStore store;
  {
    StageProcess first(&store);
    first.Load(Request(dir));
    first.AllocateKv(5);
  }
  v1::LoadRequest request = Request(dir);
  SECTION("another number of KV blocks") {
    StageProcess second(&store);
    second.Load(request);
    CHECK(second.kept().mapped_weights() != nullptr);
    second.AllocateKv(6, /*n_blocks=*/3);
    CHECK(second.kept().kv_since() == 6);
    return;
  }
  SECTION("another configuration") { request.mutable_config()->set_max_model_len(32); }
  SECTION("another type of the KV cache") {
    request.mutable_config()->set_kv_dtype(v1::KV_DTYPE_FP8);
  }
  SECTION("a file that was written since") { dir.Write("config.json", kConfig); }
  StageProcess second(&store);
  second.kept().BeginLoad(request);
  CHECK_FALSE(store.Get("weights").has_value());
  CHECK_FALSE(store.Get("kv").has_value());
}

TEST_CASE("Kept memory: a report that counted free memory serves a load with a given size") {
  TempDir dir;
  dir.Write("config.json", kConfig);
  v1::LoadRequest given = Request(dir);
  given.mutable_config()->set_kv_memory_bytes(1 << 20);
  FdStore store;
  {
    StageProcess(&store).Load(Request(dir));
  }
  {
    StageProcess second(&store);
    second.Load(given);
    CHECK(second.kept().mapped_weights() != nullptr);
  }
  store.Clear();
  {
    StageProcess(&store).Load(given);
  }
  StageProcess last(&store);
  last.Load(Request(dir));
  CHECK(last.kept().mapped_weights() == nullptr);  // the free memory must be counted
}

TEST_CASE("Kept memory: after a device error nothing is left, and without a store neither") {
  TempDir dir;
  dir.Write("config.json", kConfig);
  FdStore store;
  StageProcess stage(&store);
  stage.Load(Request(dir));
  stage.AllocateKv(5);
  CHECK(store.Get("weights").has_value());
  CHECK(store.Get("kv").has_value());
  stage.kept().Distrust();
  CHECK_FALSE(store.Get("weights").has_value());
  CHECK_FALSE(store.Get("kv").has_value());

  const auto ops = kernels::MakeReferenceOps();
  KeptMemory alone(ops.get(), nullptr);
  alone.BeginLoad(Request(dir));
  CHECK_FALSE(alone.Weights().make);
  CHECK_FALSE(alone.Kv({4}, 9).find);
  CHECK(alone.kv_since() == 9);
  alone.Distrust();
}

}  // namespace
}  // namespace stagecoach::worker
