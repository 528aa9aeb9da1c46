#include "common/flags/serve_flags.h"

#include <CLI/CLI.hpp>
#include <catch2/catch_test_macros.hpp>

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

TEST_CASE("Default flags need no arguments") {
  CHECK(ToArgs(ServeFlags{}).empty());
  CHECK(Parse({}) == ServeFlags{});
}

TEST_CASE("The launcher passes every flag on to the router") {
  ServeFlags flags;
  flags.dtype = "bfloat16";
  flags.grpc = "[::1]:0";
  flags.metrics = "localhost:19001";
  flags.http = "0.0.0.0:443";
  flags.api_keys = "/proc/self/exe";  // files that exist
  flags.tls_cert = "/proc/self/exe";
  flags.tls_key = "/proc/self/exe";
  flags.cors = {"https://a.example", "*"};
  flags.http_max_body_bytes = 12345;
  flags.http_max_header_bytes = 2345;
  flags.http_max_connections = 77;
  flags.http_max_client_connections = 76;
  flags.http_timeout_s = 5;
  flags.http_idle_timeout_s = 6;
  flags.sse_keep_alive_s = 0.25;
  flags.resume_time_s = 0.5;
  flags.request_memory_bytes = 98765432;
  flags.resume_memory_bytes = 12346;
  flags.resume_streams = 78;
  flags.kv_memory_bytes = 123456789;
  flags.max_model_len = 2048;
  flags.max_sequences = 7;
  flags.max_batched_tokens = 2040;
  flags.prefill_chunk = 64;
  flags.served_name = "a name with spaces";
  flags.load_format = "dummy";
  flags.merge_adapter = "/";  // a folder that exists
  flags.plan_ahead = false;
  flags.prefix_cache = false;
  flags.microbatches = 3;
  flags.max_waiting = 0;
  flags.max_waiting_tokens = 12345;
  flags.max_logprobs = 5;
  flags.chat_template = "/proc/self/exe";  // a file that exists
  flags.layer_split = {3, 5};
  flags.flight_recorder = "off";
  flags.otlp_endpoint = "collector:4317";
  flags.trace_sample_ratio = 0.25;
  flags.log_format = "json";
  flags.preempt_every = 9;
  CHECK(Parse(ToArgs(flags)) == flags);
}

TEST_CASE("A size accepts a unit") {
  CHECK(Parse({"--kv-memory", "2MiB"}).kv_memory_bytes == 2 << 20);
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
  // A GPU's step is told through a ring of fixed size.
  CHECK(Parse({"--max-batched-tokens", "262144"}).max_batched_tokens == 262'144);
  CHECK_THROWS_AS(Parse({"--max-batched-tokens", "1048576"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--layer-split", "3,0"}), CLI::ParseError);
  CHECK_THROWS_AS(Parse({"--chat-template", "/no/such/file"}), CLI::ParseError);
}

TEST_CASE("Either gRPC or HTTP may be off, but not both") {
  CHECK(CheckServeFlags(Parse({})).ok());
  CHECK(CheckServeFlags(Parse({"--grpc", "off", "--http", "127.0.0.1:0"})).ok());
  CHECK(absl::IsInvalidArgument(CheckServeFlags(Parse({"--grpc", "off"}))));
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

TEST_CASE("A layer split does not consume the next argument") {
  ServeFlags flags;
  CLI::App app;
  AddServeFlags(app, flags);
  std::string model;
  app.add_option("model", model);
  app.parse(std::vector<std::string>{"folder", "1,2", "--layer-split"});
  CHECK(flags.layer_split == std::vector<uint32_t>{1, 2});
  CHECK(model == "folder");
}

}  // namespace
}  // namespace stagecoach
