// The memory that a report promises, compared with what a CPU server takes with random weights.
// Shapes of docs/shapes, cut to a size for tests; `check_test "[shapes]"` keeps all but the number
// of layers, and takes gigabytes.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <string>

#include "cli/check/model_facts.h"
#include "common/temp_dir.h"
#include "kernels/cpu/cpu_ops.h"
#include "worker/model/stage_model.h"

namespace stagecoach::check {
namespace {

using Changes = std::map<std::string, int>;

constexpr const char* kShapes[] = {"gpt-oss-20b",   "gpt-oss-120b",     "glm-4.5-air",
                                   "minimax-m2",    "ministral-3-8b",   "ministral-3-14b",
                                   "llama-4-scout", "llama-4-maverick", "deepseek-v2-lite",
                                   "deepseek-v3",   "mistral-small-4"};

// The shape's config.json with other values for keys that it has.
std::string Changed(const std::string& shape, const Changes& changes) {
  std::ifstream file(STAGECOACH_SHAPES "/" + shape + "/config.json");
  boost::json::value config = boost::json::parse(file);
  boost::json::object& all = config.as_object();
  boost::json::object& text = all.contains("text_config") ? all.at("text_config").as_object() : all;
  for (const auto& [key, value] : changes) {
    if (text.contains(key)) text[key] = value;
  }
  for (const char* const key : {"layer_types", "attn_type_list"}) {
    if (text.contains(key)) {
      text[key].as_array().resize(static_cast<size_t>(changes.at("num_hidden_layers")));
    }
  }
  return boost::json::serialize(config);
}

struct Bytes {
  uint64_t promised, taken;
};

Bytes WeightBytes(const std::string& config) {
  TempDir dir;
  dir.Write("config.json", config);
  const auto spec = ReadModelSpec(dir.path());
  INFO(spec.status());
  REQUIRE(spec.ok());
  worker::StageModelOptions options{
      .model_dir = dir.path(), .n_layers = spec->n_layers(), .is_first = true, .is_last = true};
  options.config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  options.config.set_max_batched_tokens(16);
  options.config.set_max_sequences(1);
  options.config.set_max_model_len(64);
  const auto ops = kernels::MakeCpuOps({.n_threads = 2});
  const auto model = worker::StageModel::Load(options, ops.get(), nullptr);
  INFO(model.status());
  REQUIRE(model.ok());
  const auto facts = DescribeModel(*spec, {}, {}, 1);
  REQUIRE(facts.ok());
  return {facts->stages.at(0).weights_bytes, (*model)->weights_bytes()};
}

void CheckWithinTwoPercent(const std::string& shape, const Bytes& bytes) {
  INFO(shape << ": promised " << bytes.promised << ", taken " << bytes.taken);
  CHECK(static_cast<double>(bytes.promised) > 0.98 * static_cast<double>(bytes.taken));
  CHECK(static_cast<double>(bytes.promised) < 1.02 * static_cast<double>(bytes.taken));
}

TEST_CASE("a report promises the memory that a CPU server takes for its weights") {
  for (const char* const shape : kShapes) {
    CheckWithinTwoPercent(shape, WeightBytes(Changed(shape, {{"num_hidden_layers", 2},
                                                             {"vocab_size", 1024},
                                                             {"hidden_size", 256},
                                                             {"intermediate_size", 128},
                                                             {"moe_intermediate_size", 64},
                                                             {"num_attention_heads", 16},
                                                             {"num_key_value_heads", 8},
                                                             {"num_local_experts", 16},
                                                             {"n_routed_experts", 16}})));
  }
}

TEST_CASE("the same for whole shapes with two layers", "[.][shapes]") {
  for (const char* const shape : kShapes) {
    Changes changes = {{"num_hidden_layers", 2}};
    if (shape == std::string_view("minimax-m2")) changes["num_local_experts"] = 64;
    const Bytes bytes = WeightBytes(Changed(shape, changes));
    fmt::print("{}: promised {}, taken {}\n", shape, bytes.promised, bytes.taken);
    CheckWithinTwoPercent(shape, bytes);
  }
}

}  // namespace
}  // namespace stagecoach::check
