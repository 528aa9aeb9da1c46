#include "router/dispatch/layer_choice.h"

#include <catch2/catch_test_macros.hpp>

#include "router/dispatch/pipeline_setup.h"
#include "router/dispatch/testing/fake_stage.h"

namespace stagecoach::router {
namespace {

ModelSpec Spec(int32_t n_layers = 6) {
  ModelSpec spec;
  spec.hidden_size = spec.embed_size = 8;
  spec.n_heads = spec.n_kv_heads = 1;
  spec.head_dim = 8;
  spec.intermediate_size = 8;
  spec.vocab_size = 1;
  spec.max_positions = 64;
  spec.kv_groups = {{.window = 0}};
  spec.layers.resize(n_layers);
  return spec;
}

v1::DescribeResponse Worker(const std::string& name, uint32_t first = 0, uint32_t count = 0) {
  v1::DescribeResponse worker;
  worker.set_device("cuda");
  worker.set_device_name(name);
  worker.set_memory_available_bytes(1000);
  worker.mutable_lease()->set_holder("me");
  worker.mutable_layers()->set_first(first);
  worker.mutable_layers()->set_count(count);
  return worker;
}

TEST_CASE("Devices are measured if they differ, or on request") {
  const std::vector<v1::DescribeResponse> equal = {Worker("A"), Worker("A")};
  const std::vector<v1::DescribeResponse> different = {Worker("A"), Worker("B")};
  std::vector<v1::DescribeResponse> smaller = {Worker("A"), Worker("A")};
  smaller[1].set_memory_total_bytes(1);
  CHECK_FALSE(MustMeasure(MeasureStages::kAuto, equal));
  CHECK(MustMeasure(MeasureStages::kAuto, different));
  CHECK(MustMeasure(MeasureStages::kAuto, smaller));
  CHECK(MustMeasure(MeasureStages::kOn, equal));
  CHECK_FALSE(MustMeasure(MeasureStages::kOff, different));
}

TEST_CASE("Layers that the workers hold for a predecessor stay where they are") {
  const auto held = [](std::vector<v1::DescribeResponse> workers, const std::string& holder) {
    return HeldLayers(Spec(), workers, holder);
  };
  CHECK(held({Worker("A", 0, 5), Worker("A", 5, 1)}, "me") ==
        std::vector<LayerRange>{{0, 5}, {5, 1}});
  CHECK_FALSE(held({Worker("A", 0, 5), Worker("A", 5, 1)}, "another"));
  CHECK_FALSE(held({Worker("A", 0, 5), Worker("A", 4, 2)}, "me"));  // layer 4 twice
  CHECK_FALSE(held({Worker("A", 0, 5), Worker("A")}, "me"));        // a new worker
  CHECK_FALSE(held({Worker("A", 0, 3), Worker("A", 3, 2)}, "me"));  // another model
}

TEST_CASE("A device is measured with one layer of random weights, and without tiers of KV blocks") {
  v1::LoadRequest load;
  load.set_stage(0);
  load.set_n_stages(2);
  load.mutable_config()->set_kv_store("redis://host");
  load.mutable_config()->set_disk_kv("/disk");
  load.mutable_config()->set_host_kv_bytes(1);
  load.mutable_config()->set_adapter_dir("/adapter");
  load.mutable_config()->set_max_batched_tokens(512);
  load.set_n_local_workers(2);
  load.mutable_token_table()->set_n_logits(5);
  const v1::LoadRequest request = MeasuringLoad(Spec(), load);
  CHECK(request.first_layer() == 3);
  CHECK(request.n_layers() == 1);
  CHECK(request.stage() == 1);  // neither embedding nor output head
  CHECK(request.n_stages() == 3);
  CHECK_FALSE(request.has_token_table());
  CHECK(request.times_one_row());
  ModelSpec sharing = Spec();  // layers 2 to 5 must be on one stage
  for (const int32_t layer : {3, 5}) sharing.layers[layer].kv_source = 2;
  CHECK(MeasuringLoad(sharing, load).first_layer() == 1);
  v1::LoadConfig left = request.config();
  CHECK(left.load_format() == v1::LOAD_FORMAT_DUMMY);
  left.clear_load_format();
  left.clear_max_batched_tokens();
  CHECK(left.ByteSizeLong() == 0);

  v1::MemoryReport report;
  report.set_one_row_ms(1);
  report.set_largest_step_ms(2);
  report.set_weights_bytes(100);
  report.set_kv_bytes(700);
  report.add_kv_block_bytes(160);
  // A host: half of its memory.
  CHECK(Measured(report, Worker("A"), request).memory_bytes == 500);
  report.set_device_bytes(1000);
  const LayerOnDevice device = Measured(report, Worker("A"), request);
  CHECK(device.one_row_s == 1e-3);
  CHECK(device.many_rows_s == 2e-3);
  CHECK(device.many_rows == 512);
  CHECK(device.weights_bytes == 100);
  CHECK(device.kv_bytes_a_token == 10);
  CHECK(device.memory_bytes == 800);
  CHECK_FALSE(device.kv_is_fixed);
  v1::LoadRequest fixed = request;
  fixed.mutable_config()->set_kv_memory_bytes(300);
  CHECK(Measured(report, Worker("A"), fixed).kv_is_fixed);
  CHECK(Measured(report, Worker("A"), fixed).memory_bytes == 300);
}

TEST_CASE("A pipeline gives more layers to the faster device") {
  FakeStage fast({.device_name = "fast", .layer_ms = 1, .kv_bytes = 5000});
  FakeStage slow({.device_name = "slow", .layer_ms = 2, .kv_bytes = 5000});
  PipelineOptions options;
  options.model_dir = "/model";
  options.addresses = {fast.address(), slow.address()};
  options.lease_holder = "me";
  const auto layers = [&] {
    const auto pipeline = SetUpPipeline(Spec(), options);
    INFO(pipeline.status().ToString());
    REQUIRE(pipeline.ok());
    CHECK(fast.load_request()->config().load_format() == v1::LOAD_FORMAT_AUTO);
    return pipeline->stages[0].layers.count;
  };
  CHECK(layers() == 4);
  options.flags.measure_stages = MeasureStages::kOff;
  CHECK(layers() == 3);
}

TEST_CASE("Nearly equal devices get the same layers at each start") {
  const std::vector<LayerOnDevice> devices = {
      {.one_row_s = 1.00e-3, .many_rows_s = 1.00e-3, .kv_bytes_a_token = 1, .memory_bytes = 10000},
      {.one_row_s = 1.06e-3, .many_rows_s = 1.06e-3, .kv_bytes_a_token = 1, .memory_bytes = 10000}};
  v1::LoadConfig config;
  config.set_max_sequences(4);
  config.set_max_model_len(64);
  const std::vector<LayerRange> even = {{0, 30}, {30, 30}};
  CHECK(ChooseMeasured(Spec(60), devices, config, even) == even);
}

}  // namespace
}  // namespace stagecoach::router
