#include "common/flags/serve_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <set>

#include "common/flags/flag_table.h"
#include "common/flags/worker_flags.h"

namespace stagecoach {
namespace {

ServeFlags Parse(std::vector<std::string> args) {
  ServeFlags flags;
  CLI::App app;
  AddServeFlags(app, flags);
  std::reverse(args.begin(), args.end());  // CLI11 takes them from the back
  app.parse(args);
  return flags;
}

// Sets variables, "NAME=VALUE", as long as it lives.
class WithEnvironment {
 public:
  explicit WithEnvironment(std::vector<std::string> variables) : variables_(std::move(variables)) {
    for (const std::string& one : variables_) {
      const size_t equals = one.find('=');
      setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), /*overwrite=*/1);
    }
  }
  ~WithEnvironment() {
    for (const std::string& one : variables_) unsetenv(one.substr(0, one.find('=')).c_str());
  }
  WithEnvironment(const WithEnvironment&) = delete;
  WithEnvironment& operator=(const WithEnvironment&) = delete;

 private:
  const std::vector<std::string> variables_;
};

TEST_CASE("Default flags need no arguments") {
  CHECK(ToArgs(ServeFlags{}).empty());
  CHECK(Parse({}) == ServeFlags{});
}

TEST_CASE("The launcher passes every flag on to the router") {
  ServeFlags flags;
  v1::LoadConfig& config = flags.load.config;
  config.set_dtype(v1::DTYPE_BFLOAT16);
  flags.grpc = "[::1]:0";
  flags.metrics = "localhost:19001";
  flags.http = "0.0.0.0:443";
  flags.access.api_keys = "/proc/self/exe";  // files that exist
  flags.access.tls_cert = "/proc/self/exe";
  flags.access.tls_key = "/proc/self/exe";
  flags.cors = {"https://a.example", "*"};
  flags.http_limits.max_body_bytes = 12345;
  flags.http_limits.max_header_bytes = 2345;
  flags.http_limits.max_connections = 77;
  flags.http_limits.max_client_connections = 76;
  flags.http_limits.header_timeout = std::chrono::seconds(5);
  flags.http_limits.idle_timeout = std::chrono::seconds(6);
  flags.http_limits.keep_alive_interval = std::chrono::milliseconds(250);
  flags.streams.keep = std::chrono::milliseconds(500);
  flags.request_memory_bytes = 98765432;
  flags.streams.max_bytes = 12346;
  flags.responses.keep = std::chrono::seconds(61);
  flags.responses.max_bytes = 345678;
  flags.streams.max_streams = 78;
  flags.journal = {.place = "a folder", .max_bytes = 12345};
  flags.kv_events = {.endpoint = "tcp://*:5556", .replay = "tcp://*:5559", .topic = "kv@a:1@m"};
  config.set_kv_memory_bytes(123456789);
  config.set_memory_fraction(0.3F);
  config.set_max_model_len(2048);
  config.set_max_sequences(7);
  config.set_max_batched_tokens(2040);
  config.set_max_prefill_chunk(64);
  flags.served_name = "a name with spaces";
  config.set_load_format(v1::LOAD_FORMAT_DUMMY);
  config.set_adapter_dir("/");  // a folder that exists
  config.set_kv_store("dir:/kv");
  config.set_disk_kv("/mnt/kv:5GiB");
  config.set_host_kv_bytes(6 << 20);
  flags.scheduler.plan_ahead = false;
  flags.scheduler.prefix_cache = false;
  flags.replicas = 2;
  flags.control = "/tmp/control";
  flags.request_log = false;
  flags.microbatches = 3;
  flags.scheduler.max_waiting = 0;
  flags.scheduler.max_waiting_tokens = 12345;
  config.set_max_logprobs(5);
  config.set_quantize(v1::QUANTIZE_INT4);
  config.set_kv_dtype(v1::KV_DTYPE_FP8);
  config.set_hidden_dtype(v1::HIDDEN_DTYPE_BFLOAT16);
  flags.chat_template = "/proc/self/exe";  // a file that exists
  flags.load.layer_split = {3, 5};
  flags.load.measure_stages = MeasureStages::kOn;
  flags.stall_limit = std::chrono::seconds(3);
  flags.recovery_limit = std::chrono::seconds(5);
  flags.load.load_stall_limit = std::chrono::seconds(4);
  flags.observation.flight_recorder = "off";
  flags.observation.otlp_endpoint = "collector:4317";
  flags.trace_sample_ratio = 0.25;
  flags.observation.log_format = "json";
  flags.scheduler.preempt_every = 9;
  const std::vector<std::string> args = ToArgs(flags);
  const WithEnvironment environment(ToEnvironment(flags));
  CHECK(Parse(args) == flags);
  // The values above leave no flag out.
  ServeFlags declared;
  CLI::App app;
  AddServeFlags(app, declared);
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = "--" + option->get_lnames().front();  // get_name hides hidden flags
    if (name == "--help") continue;
    INFO(name);
    const bool is_argument = std::find(args.begin(), args.end(), name) != args.end();
    CHECK(is_argument == option->get_envname().empty());
  }
}

TEST_CASE("What may have a password is in no command line, wherever it comes from") {
  ServeFlags flags;
  flags.load.config.set_kv_store("redis://user:secret@host");
  CHECK(ToArgs(flags).empty());
  const std::vector<std::string> environment = ToEnvironment(flags);
  CHECK(environment == std::vector<std::string>{"STAGECOACH_JOURNAL=",
                                                "STAGECOACH_KV_STORE=redis://user:secret@host"});
  const WithEnvironment set(environment);
  CHECK(Parse({}) == flags);
}

TEST_CASE("The launcher passes every worker flag on to the workers") {
  WorkerFlags flags;
  CHECK(ArgsOf(flags, DeclareWorkerFlags).empty());
  flags.batch_invariant = true;
  flags.transport = {.transport = "host",
                     .nccl_library = "/lib/nccl.so",
                     .nccl_interface = "eth0",
                     .nccl_settings = {"NCCL_A=1", "NCCL_B=2"},
                     .link_timeout_s = 7};
  flags.disturbance_seed = 8;
  flags.tuning_folder = "/var/cache/stagecoach";
  const std::vector<std::string> args = ArgsOf(flags, DeclareWorkerFlags);
  CHECK(args == std::vector<std::string>{"--batch-invariant", "--transport", "host",
                                         "--nccl-library", "/lib/nccl.so", "--nccl-interface",
                                         "eth0", "--nccl-setting", "NCCL_A=1", "--nccl-setting",
                                         "NCCL_B=2", "--link-timeout", "7", "--tuning-cache",
                                         "/var/cache/stagecoach", "--disturb", "8"});
  WorkerFlags parsed;
  CLI::App app;
  FlagTable table(app);
  DeclareWorkerFlags(table, parsed);
  app.parse(std::vector<std::string>(args.rbegin(), args.rend()));
  CHECK(ArgsOf(parsed, DeclareWorkerFlags) == args);
}

TEST_CASE("A size accepts a unit") {
  CHECK(Parse({"--kv-memory", "2MiB"}).load.config.kv_memory_bytes() == 2 << 20);
}

// What somebody reads who gives the flag a wrong value; empty: the value is accepted.
template <typename Flags>
std::string Complaint(void (*declare)(FlagTable&, Flags&), const std::string& name,
                      const std::string& value) {
  Flags flags;
  CLI::App app;
  FlagTable table(app);
  declare(table, flags);
  try {
    app.parse(std::vector<std::string>{value, name});
    return "";
  } catch (const CLI::ParseError& error) {
    return error.what();
  }
}

template <typename Flags>
void CheckComplaints(void (*declare)(FlagTable&, Flags&)) {
  Flags flags;
  CLI::App app;
  FlagTable table(app);
  declare(table, flags);
  for (const CLI::Option* option : app.get_options()) {
    const bool has_value = option->get_items_expected_max() > 0;
    const bool is_hidden = option->get_group().empty();
    if (!has_value || is_hidden) continue;
    const std::string name = "--" + option->get_lnames().front();
    const std::set<std::string> of_numbers = {"N", "N,N...", "S", "F", "SEED"};
    for (const char* value : {"-1", "x", "1.5", "1e300", "99999999999"}) {
      const std::string complaint = Complaint(declare, name, value);
      INFO(name << ' ' << value << ": " << complaint);
      CHECK(complaint.size() < 150);
      CHECK(complaint.find("Could not convert") == std::string::npos);
      CHECK((complaint.empty() || complaint.starts_with(name)));
    }
    INFO(name);
    if (!of_numbers.contains(option->get_type_name())) continue;
    CHECK(!Complaint(declare, name, "-1").empty());
    CHECK(!Complaint(declare, name, "x").empty());
  }
}

TEST_CASE("What is said about a wrong value can be read") {
  CheckComplaints(DeclarePipelineFlags);
  CheckComplaints(DeclareFrontEndFlags);
  CheckComplaints(DeclareWorkerFlags);
  CHECK(Complaint(DeclarePipelineFlags, "--max-sequences", "0") ==
        "--max-sequences: must be more than 0, not 0");
  CHECK(Complaint(DeclarePipelineFlags, "--max-sequences", "1.5") ==
        "--max-sequences: '1.5' is not a whole number");
  CHECK(Complaint(DeclarePipelineFlags, "--max-sequences", "99999999999") ==
        "--max-sequences: 99999999999 is too large");
  CHECK(Complaint(DeclarePipelineFlags, "--layer-split", "3,0") ==
        "--layer-split: must be more than 0, not 0");
  CHECK(Complaint(DeclarePipelineFlags, "--stall-limit", "0") ==
        "--stall-limit: must be from 1 to 86400, not 0");
  CHECK(Complaint(DeclareFrontEndFlags, "--resume-time", "-1") ==
        "--resume-time: must be from 0 to 86400, not -1");
}

TEST_CASE("Invalid flag values are refused") {
  CHECK_THROWS_AS(Parse({"--grpc", "9000"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--grpc", "host:70000"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--grpc", "host:"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--metrics", ":1"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--http", "on"}), CLI::ValidationError);
  CHECK(Parse({"--http", "off"}).http == "off");
  CHECK_THROWS_AS(Parse({"--http-max-body", "lots"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--tls-cert", "/proc/self/exe"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--kv-memory", "lots"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--dtype", "int3"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--plan-ahead", "maybe"}), CLI::ValidationError);
  CHECK_THROWS_AS(Parse({"--max-sequences", "0"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--max-waiting", "-1"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--stall-limit", "0.5"}), CLI::ParseError);
  // A GPU's step is told through a ring of fixed size.
  CHECK(Parse({"--max-batched-tokens", "262144"}).load.config.max_batched_tokens() == 262'144);
  CHECK_THROWS_AS(Parse({"--max-batched-tokens", "1048576"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--layer-split", "3,0"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--chat-template", "/no/such/file"}), CLI::ParseError);
}

TEST_CASE("Either gRPC or HTTP may be off, but not both") {
  CHECK(CheckServeFlags(Parse({})).ok());
  CHECK(CheckServeFlags(Parse({"--grpc", "off", "--http", "127.0.0.1:0"})).ok());
  CHECK(absl::IsInvalidArgument(CheckServeFlags(Parse({"--grpc", "off"}))));
}

TEST_CASE("KV events need a prefix cache that is not divided between tenants") {
  const std::vector<std::string> events = {"--kv-events", "tcp://*:5556"};
  CHECK(CheckServeFlags(Parse(events)).ok());
  for (const std::vector<std::string>& other :
       {std::vector<std::string>{"--prefix-cache", "off"}, {"--api-keys", "/proc/self/exe"}}) {
    std::vector<std::string> args = events;
    args.insert(args.end(), other.begin(), other.end());
    CHECK(absl::IsInvalidArgument(CheckServeFlags(Parse(args))));
  }
  for (const char* endpoint : {"tcp://*:*", "tcp://[::]:5556", "tcp://indexer:5556", "ipc:///x"}) {
    CHECK(Parse({"--kv-events", endpoint}).kv_events.endpoint == endpoint);
  }
  for (const char* endpoint :
       {"*:5556", "tcp://:1", "tcp://host", "tcp://host:x", "ipc://", "udp://a:1"}) {
    CHECK_THROWS_AS(Parse({"--kv-events", endpoint}), CLI::ValidationError);
  }
  CHECK_THROWS_AS(Parse({"--kv-events-topic", "t"}), CLI::RequiresError);
}

TEST_CASE("Addresses are checked before anything is loaded, and the error names the unusable one") {
  const std::vector<std::string> free = {"--grpc",      "127.0.0.1:0", "--http",
                                         "127.0.0.1:0", "--metrics",   "127.0.0.1:0"};
  CHECK(CheckAddresses(Parse(free)).ok());
  CHECK(CheckAddresses(Parse({"--grpc", "off", "--http", "off", "--metrics", "127.0.0.1:0"})).ok());
  const absl::Status elsewhere = CheckAddresses(
      Parse({"--grpc", "127.0.0.1:0", "--http", "192.0.2.1:80", "--metrics", "127.0.0.1:0"}));
  CHECK(absl::IsUnavailable(elsewhere));
  CHECK(std::string(elsewhere.message()).find("192.0.2.1:80 (--http)") != std::string::npos);
}

TEST_CASE("A default address moves to the next free port, a chosen one stays") {
  FrontEndFlags flags;
  flags.grpc = "127.0.0.1:0";
  flags.http = "127.0.0.1:9001";  // chosen
  CHECK(MoveTakenAddresses(flags, {.metrics = true}).size() == 1);
  CHECK(flags.http == "127.0.0.1:9001");
  CHECK(flags.metrics != "127.0.0.1:9001");
  CHECK(CheckAddresses(flags).code() != absl::StatusCode::kInvalidArgument);
  flags.http = "off";
  CHECK(MoveTakenAddresses(flags, {.http = true}).empty());
  CHECK(flags.http == "off");
}

TEST_CASE("A layer split does not consume the next argument") {
  ServeFlags flags;
  CLI::App app;
  AddServeFlags(app, flags);
  std::string model;
  app.add_option("model", model);
  app.parse(std::vector<std::string>{"folder", "1,2", "--layer-split"});
  CHECK(flags.load.layer_split == std::vector<uint32_t>{1, 2});
  CHECK(model == "folder");
}

}  // namespace
}  // namespace stagecoach
