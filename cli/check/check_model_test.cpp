#include "cli/check/check_model.h"

#include <algorithm>
#include <boost/json.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "absl/cleanup/cleanup.h"
#include "cli/check/model_facts.h"
#include "common/env_switch.h"
#include "common/model/model_spec.h"
#include "common/temp_dir.h"

namespace stagecoach::check {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::WithinRel;

// A copy of a golden model that tests damage.
class Checkpoint {
 public:
  explicit Checkpoint(const std::string& name) {
    const std::filesystem::path from = std::filesystem::path(STAGECOACH_GOLDEN_DATA) / name;
    for (const auto& file : std::filesystem::directory_iterator(from)) {
      std::filesystem::copy(file.path(), dir_.File(file.path().filename().string()));
    }
  }
  std::string path() const { return dir_.path(); }
  void Write(const std::string& name, std::string_view text) {
    dir_.Write(name, std::string(text));
  }
  void Remove(const std::string& name) { std::filesystem::remove(dir_.File(name)); }
  // Replaces one value of a JSON file.
  void Set(const std::string& name, std::string_view key, boost::json::value value) {
    std::ifstream file(dir_.File(name));
    std::string text{std::istreambuf_iterator<char>(file), {}};
    boost::json::value parsed = boost::json::parse(text);
    parsed.as_object()[key] = std::move(value);
    Write(name, boost::json::serialize(parsed));
  }

 private:
  TempDir dir_;
};

std::vector<Part> Parts(const ModelReport& report) {
  std::vector<Part> parts;
  for (const Finding& finding : report.problems) parts.push_back(finding.part);
  return parts;
}

TEST_CASE("the report describes a valid checkpoint") {
  const Checkpoint model("gemma2");
  const ModelReport report = CheckModel({.model = model.path(), .n_stages = 2});
  INFO(ToText(report, 100));
  REQUIRE(report.ok());
  CHECK(report.notes.empty());
  REQUIRE(report.facts);
  CHECK(report.facts->architecture == "Gemma2ForCausalLM");
  CHECK(report.facts->n_layers() == 4);
  CHECK(report.facts->stages.size() == 2);
  CHECK(report.tokenizer);
  CHECK(report.has_template);
  uint64_t kv = 0;
  for (const WindowFacts& group : report.facts->windows) kv += group.n_layers;
  CHECK(kv == 4);
  const boost::json::object json = ToJson(report);
  CHECK(json.at("ok").as_bool());
  CHECK(json.at("layers").as_int64() == 4);
  CHECK(json.at("problems").as_array().empty());
}

TEST_CASE("parameters and KV bytes match the formula") {
  const Checkpoint model("mistral");
  std::ifstream file(model.path() + "/config.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const boost::json::object config = boost::json::parse(text).as_object();
  const auto number = [&](const char* key) { return config.at(key).to_number<uint64_t>(); };
  const uint64_t layers = number("num_hidden_layers"), hidden = number("hidden_size");
  const uint64_t head = number("head_dim"), kv_heads = number("num_key_value_heads");
  const uint64_t heads = number("num_attention_heads"), width = number("intermediate_size");
  const ModelReport report = CheckModel({.model = model.path()});
  REQUIRE(report.facts);
  const ModelFacts& facts = *report.facts;
  CHECK(facts.kv_bytes_per_token == 2 * layers * kv_heads * head * DTypeBytes(facts.kv_dtype));
  const bool tied =
      config.contains("tie_word_embeddings") && config.at("tie_word_embeddings").as_bool();
  CHECK(facts.n_parameters == number("vocab_size") * hidden * (tied ? 1 : 2) + hidden +
                                  layers * (hidden * head * (2 * heads + 2 * kv_heads) +
                                            3 * hidden * width + 2 * hidden));
  REQUIRE(facts.stages.size() == 1);
  CHECK(facts.stages[0].n_layers == static_cast<int32_t>(layers));
  v1::LoadConfig float32;
  float32.set_dtype(v1::DTYPE_FLOAT32);
  const ModelReport wide = CheckModel({.model = model.path(), .config = float32});
  CHECK(wide.facts->stages[0].weights_bytes == 4 * facts.n_parameters);
}

TEST_CASE("an FP8 cache takes a byte per number, and a scale of two bytes per token and head") {
  const Checkpoint model("mistral");
  CheckOptions options{.model = model.path(), .config = {}};
  const ModelReport plain = CheckModel(options);
  options.config.set_kv_dtype(v1::KV_DTYPE_FP8);
  const ModelReport report = CheckModel(options);
  REQUIRE(report.ok());
  const ModelSpec spec = *ReadModelSpec(model.path());
  CHECK(report.facts->kv_bytes_per_token ==
        2ull * static_cast<uint64_t>(spec.n_layers() * spec.n_kv_heads * (spec.head_dim + 2)));
  CHECK(report.facts->stages[0].kv_bytes < plain.facts->stages[0].kv_bytes);
  CHECK(report.facts->stages[0].weights_bytes == plain.facts->stages[0].weights_bytes);
  CHECK_THAT(ToText(report, 100), ContainsSubstring(" bytes per token in fp8"));
  CHECK(ToJson(report).at("kv_dtype") == "fp8");
}

TEST_CASE("a model with latent attention has no FP8 cache") {
  CheckOptions options{.model = STAGECOACH_SHAPES "/deepseek-v2-lite", .config = {}};
  options.config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  options.config.set_kv_dtype(v1::KV_DTYPE_FP8);
  const ModelReport report = CheckModel(options);
  REQUIRE_FALSE(report.problems.empty());
  CHECK_THAT(report.problems[0].text, ContainsSubstring("leave out --kv-dtype"));
}

TEST_CASE("a model with recurrent layers: its state, and what is left out") {
  const Checkpoint model("qwen3-5");
  CheckOptions options{.model = model.path(), .n_stages = 2};
  const ModelReport report = CheckModel(options);
  INFO(ToText(report, 100));
  REQUIRE(report.ok());
  CHECK(report.facts->n_layers() == 4);
  CHECK(report.facts->n_recurrent == 2);
  // Six matrices of 24 x 16, and three columns of 192.
  CHECK(report.facts->state_bytes == 2 * 4 * (6 * 24 * 16 + 3 * 192));
  CHECK(report.facts->stages[0].state_bytes + report.facts->stages[1].state_bytes ==
        report.facts->state_bytes);
  const std::string text = ToText(report, 1000);
  CHECK_THAT(text, ContainsSubstring("4, of which 2 are recurrent"));
  CHECK_THAT(text, ContainsSubstring("for the recurrent state of each sequence"));
  CHECK_THAT(text, ContainsSubstring("served as text"));
  CHECK_THAT(text, ContainsSubstring("belongs to the vision tower"));
  CHECK_THAT(text, ContainsSubstring("predicts several tokens at once"));

  options.on_gpus = true;
  CHECK(CheckModel(options).ok());
  options.config.set_host_kv_bytes(1 << 20);
  CHECK(CheckModel(options).ok());
}

TEST_CASE("published shapes with layers of several kinds") {
  struct Shape {
    const char* name;
    double n_parameters;
    uint64_t state_bytes;
    uint64_t kv_bytes_per_token;
  };
  // A state has a matrix for each head, and three columns of the convolution.
  for (const Shape& shape :
       {Shape{"qwen3-next-80b-a3b", 79.7e9, 36 * 4 * (32 * 128 * 128 + 3 * 8192), 24576},
        Shape{"qwen3.6-27b", 26.9e9, 48 * 4 * (48 * 128 * 128 + 3 * 10240), 65536},
        Shape{"qwen3.6-35b-a3b", 34.7e9, 30 * 4 * (32 * 128 * 128 + 3 * 8192), 20480},
        Shape{"nemotron-h-8b", 8.1e9, 24 * 4 * (128 * 64 * 128 + 3 * 10240), 16384},
        Shape{"nemotron-nano-9b-v2", 8.89e9, 27 * 4 * (128 * 80 * 128 + 3 * 12288), 16384},
        Shape{"nemotron-3-nano-30b-a3b", 31.6e9, 23 * 4 * (64 * 64 * 128 + 3 * 6144), 6144},
        // Without recurrent layers: Llama 4, Mistral Small 4.
        Shape{"llama-4-scout", 107.8e9, 0, 196608}, Shape{"llama-4-maverick", 400.7e9, 0, 196608},
        Shape{"mistral-small-4", 119.0e9, 0, 23040}}) {
    INFO(shape.name);
    const auto spec =
        ReadModelSpec(STAGECOACH_GOLDEN_DATA "/../../../docs/shapes/" + std::string(shape.name));
    REQUIRE(spec.ok());
    const auto facts = DescribeModel(*spec, {}, {}, 4);
    REQUIRE(facts.ok());
    CHECK_THAT(static_cast<double>(facts->n_parameters), WithinRel(shape.n_parameters, 0.01));
    CHECK(facts->state_bytes == shape.state_bytes);
    CHECK(facts->kv_bytes_per_token == shape.kv_bytes_per_token);
    CHECK(facts->stages.size() == 4);
  }
}

TEST_CASE("one report contains the problems of all parts") {
  Checkpoint model("llama3");
  model.Set("config.json", "intermediate_size", 7);
  model.Remove("tokenizer.json");
  model.Write("chat_template.jinja", "{% if %}");
  const ModelReport report = CheckModel({.model = model.path()});
  INFO(ToText(report, 100));
  // gate_proj and up_proj have one shape, down_proj has another.
  CHECK(Parts(report) ==
        std::vector{Part::kTensors, Part::kTensors, Part::kTemplate, Part::kTokenizer});
  CHECK_THAT(report.problems[0].text, ContainsSubstring("mlp.up_proj.weight"));
  CHECK_THAT(report.problems[2].text, ContainsSubstring("chat_template.jinja"));
  CHECK_THAT(report.problems[3].text, ContainsSubstring("tokenizer.json"));
  CHECK_FALSE(ToJson(report).at("ok").as_bool());
}

TEST_CASE("the tokenizer is checked even if the config is broken") {
  Checkpoint model("opt");
  model.Set("config.json", "architectures", {"QwertyForCausalLM"});
  model.Remove("tokenizer.json");
  CHECK(Parts(CheckModel({.model = model.path()})) == std::vector{Part::kConfig, Part::kTokenizer});
}

TEST_CASE("the check skips files that a start does not need") {
  Checkpoint model("opt");
  model.Write("tokenizer.json", std::string(3 << 20, ' '));  // large, and not JSON
  model.Remove("model.safetensors");
  model.Remove("chat_template.jinja");
  CheckOptions options{.model = model.path(), .read_large_tokenizer = false};
  options.config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  const ModelReport report = CheckModel(options);
  INFO(ToText(report, 100));
  CHECK(report.ok());
  CHECK_FALSE(report.has_template);
  CHECK_FALSE(report.tokenizer);
  model.Write("tokenizer.json", "no JSON");
  CHECK(Parts(CheckModel(options)) == std::vector{Part::kTokenizer});
}

TEST_CASE("too many stages, a missing model and a missing template are problems") {
  const Checkpoint model("opt");
  CHECK(Parts(CheckModel({.model = model.path(), .n_stages = 99})) == std::vector{Part::kModel});
  CHECK(Parts(CheckModel({.model = "/no/such/folder"})) == std::vector{Part::kModel});
  CHECK(Parts(CheckModel({.model = model.path(), .chat_template = "/no/such.jinja"})) ==
        std::vector{Part::kTemplate});
}

TEST_CASE("a token without an embedding row and a template that fails are problems") {
  Checkpoint model("mistral");
  std::ifstream file(model.path() + "/tokenizer.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  boost::json::value tokenizer = boost::json::parse(text);
  const int32_t n = CheckModel({.model = model.path()}).facts->vocab_size;
  tokenizer.at("added_tokens")
      .as_array()
      .push_back({{"id", n},
                  {"content", "<|turn|>"},
                  {"single_word", false},
                  {"lstrip", false},
                  {"rstrip", false},
                  {"normalized", false},
                  {"special", true}});
  model.Write("tokenizer.json", boost::json::serialize(tokenizer));
  model.Write("chat_template.jinja", "{{ raise_exception('a system message first') }}");
  const ModelReport report = CheckModel({.model = model.path()});
  INFO(ToText(report, 100));
  CHECK(Parts(report) == std::vector{Part::kTokenizer});
  CHECK_THAT(report.problems[0].text, ContainsSubstring("<|turn|>"));
  REQUIRE(report.notes.size() == 1);
  CHECK_THAT(report.notes[0].text, ContainsSubstring("a system message first"));
}

TEST_CASE("the check finds an impossible KV memory size before anything starts") {
  const Checkpoint model("gemma2");
  const auto check = [&](uint64_t kv_memory_bytes, int32_t max_model_len) {
    CheckOptions options{.model = model.path()};
    options.config.set_kv_memory_bytes(kv_memory_bytes);
    options.config.set_max_model_len(max_model_len);
    return CheckModel(options);
  };
  const auto problem = [&](uint64_t kv_memory_bytes, int32_t max_model_len) {
    const ModelReport report = check(kv_memory_bytes, max_model_len);
    REQUIRE(Parts(report) == std::vector{Part::kMemory});
    return report.problems.front().text;
  };
  CHECK_THAT(problem(10, 0), ContainsSubstring("do not hold a single block"));
  CHECK_THAT(problem(uint64_t{1} << 60, 0), ContainsSubstring("of this machine"));
  CHECK_THAT(problem(40'000, 128), ContainsSubstring("--max-model-len 128 needs"));
  CHECK(check(2 << 20, 0).ok());
}

TEST_CASE("a message keeps the folder's path in the middle of a sentence") {
  Checkpoint model("gemma2");
  model.Remove("tokenizer.json");
  const ModelReport report = CheckModel({.model = model.path()});
  REQUIRE(Parts(report) == std::vector{Part::kTokenizer});
  CHECK_THAT(report.problems.front().text,
             ContainsSubstring("no tokenizer in " + model.path() + ": looked for"));
}

TEST_CASE("a model that runs on CPUs only has a note, and a problem on GPUs") {
  Checkpoint model("qwen3-next");
  model.Set("config.json", "linear_key_head_dim", 512);
  CheckOptions options{.model = model.path(), .config = {}};
  options.config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  const ModelReport on_cpus = CheckModel(options);
  INFO(ToText(on_cpus, 100));
  REQUIRE(on_cpus.ok());
  CHECK(std::any_of(on_cpus.notes.begin(), on_cpus.notes.end(), [](const Finding& note) {
    return note.text.find("Qwen3NextForCausalLM runs on CPUs only") != std::string::npos;
  }));
  options.on_gpus = true;
  CHECK(Parts(CheckModel(options)) == std::vector<Part>{Part::kConfig});
}

TEST_CASE("GPUs quantize models with experts unless these are expanded") {
  CheckOptions options{.on_gpus = true};
  options.config.set_quantize(v1::QUANTIZE_INT4);
  const Checkpoint dense("llama3"), experts("mixtral");
  options.model = dense.path();
  CHECK(CheckModel(options).ok());
  options.model = experts.path();
  CHECK(CheckModel(options).ok());
  setenv(kPackedExpertsSwitch, "off", /*overwrite=*/1);
  const absl::Cleanup restore = [] { unsetenv(kPackedExpertsSwitch); };
  const ModelReport report = CheckModel(options);
  REQUIRE(report.problems.size() == 1);
  CHECK_THAT(report.problems[0].text, ContainsSubstring("--quantize"));
  options.on_gpus = false;
  CHECK(CheckModel(options).ok());
}

TEST_CASE("MXFP4 experts count as they are stored") {
  const Checkpoint model("quantized/mxfp4");
  const ModelReport report = CheckModel({.model = model.path()});
  INFO(ToText(report, 100));
  REQUIRE(report.ok());
  const auto mxfp4 = std::find_if(
      report.facts->encodings.begin(), report.facts->encodings.end(),
      [](const EncodingFacts& facts) { return facts.name == "MXFP4 in groups of 32"; });
  REQUIRE(mxfp4 != report.facts->encodings.end());
  // 4 layers of 5 experts: gate and up [2 * 64, 32], down [32, 64]
  CHECK(mxfp4->bytes == 4 * 5 * (3 * 64 * 32) * 17 / 32);
}

TEST_CASE("quantized experts count as they are stored on GPUs, too") {
  const auto weight_bytes = [](const std::string& name, bool on_gpus) {
    const auto spec = ReadModelSpec(STAGECOACH_GOLDEN_DATA "/../../../docs/shapes/" + name);
    REQUIRE(spec.ok());
    const auto facts = DescribeModel(*spec, {}, {}, 1, on_gpus);
    REQUIRE(facts.ok());
    return static_cast<double>(facts->stages[0].weights_bytes);
  };
  for (const char* const name : {"gpt-oss-120b", "mistral-small-4", "deepseek-v3"}) {
    INFO(name);
    CHECK_THAT(weight_bytes(name, true), WithinRel(weight_bytes(name, false), 0.01));
  }
  // A byte for each parameter; embeddings and the head have two, and so has what makes keys and
  // values, because its rows go to two matrices.
  CHECK_THAT(weight_bytes("deepseek-v3", true), WithinRel(675e9, 0.01));
  setenv(kPackedExpertsSwitch, "off", /*overwrite=*/1);
  const absl::Cleanup restore = [] { unsetenv(kPackedExpertsSwitch); };
  CHECK(weight_bytes("gpt-oss-120b", true) > 3 * weight_bytes("gpt-oss-120b", false));
}

TEST_CASE("quantized weights that GPUs cannot keep count in 16 bits there") {
  const Checkpoint model("mixtral");
  const ModelSpec spec = *ReadModelSpec(model.path());
  worker::StageWeights targets;
  const worker::WeightPlan plan = PlanWholeModel(spec, &targets);
  const auto weight_bytes = [&](int32_t group, bool on_gpus) {
    Encoding int4(Code::kInt4);
    int4.scale = DType::kBF16;
    int4.group = group;
    std::vector<Storage> stored;
    for (const worker::TensorRequest& request : plan.requests) {
      stored.push_back({DType::kBF16, request.is_linear ? std::optional(int4) : std::nullopt});
    }
    return DescribeModel(spec, {}, stored, 1, on_gpus)->stages[0].weights_bytes;
  };
  CHECK(weight_bytes(32, true) == weight_bytes(32, false));
  CHECK(weight_bytes(16, true) > 3 * weight_bytes(16, false) / 2);
}

}  // namespace
}  // namespace stagecoach::check
