#include "common/flags/serve_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "common/size.h"

namespace stagecoach {
namespace {

// "[::1]:9000", "0.0.0.0:0", "localhost:9000"
std::string CheckAddress(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? "" : text.substr(colon + 1);
  const bool digits = !port.empty() && port.size() <= 5 &&
                      port.find_first_not_of("0123456789") == std::string::npos;
  if (colon == 0 || !digits || std::stoul(port) > 65535) {
    return fmt::format("'{}' is not HOST:PORT (such as 127.0.0.1:9000)", text);
  }
  return "";
}

std::string CheckAddressOrOff(const std::string& text) {
  return text == "off" ? "" : CheckAddress(text);
}

void AddHttpFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--http", flags.http,
                 "Address of the OpenAI-compatible HTTP API and the web page; port 0: any free "
                 "port; \"off\": no HTTP")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddressOrOff, ""))
      ->capture_default_str();
  app.add_option("--api-keys", flags.api_keys,
                 "File of API keys, one per line; clients need one of them over HTTP and gRPC. A "
                 "line is KEY [tenant=NAME] [weight=N] [max_priority=N] [requests_per_minute=N] "
                 "(default: no key is needed)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  CLI::Option* cert = app.add_option("--tls-cert", flags.tls_cert,
                                     "Certificate chain for TLS over HTTP and gRPC, PEM")
                          ->type_name("FILE")
                          ->check(CLI::ExistingFile);
  CLI::Option* key = app.add_option("--tls-key", flags.tls_key, "Private key of --tls-cert, PEM")
                         ->type_name("FILE")
                         ->check(CLI::ExistingFile);
  cert->needs(key);
  key->needs(cert);
  app.add_option("--cors", flags.cors,
                 "Origin of a web page that may use the HTTP API, such as "
                 "https://chat.example.org; may be repeated; * allows all")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  AddSize(app, "--http-max-body", flags.http_max_body_bytes,
          "Largest body of an HTTP request [16MiB]");
  AddSize(app, "--http-max-header", flags.http_max_header_bytes,
          "Largest header of an HTTP request [32KiB]");
  app.add_option("--http-max-connections", flags.http_max_connections,
                 "Open HTTP connections, and so open streams, at most; further ones are refused")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--http-max-client-connections", flags.http_max_client_connections,
                 "Open HTTP connections of one client address, at most; a proxy in front counts as "
                 "one client")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--http-timeout", flags.http_timeout_s,
                 "Seconds within which an HTTP client must start a request, send its header, and "
                 "read some of the answer; the body may take twice as long")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--http-idle-timeout", flags.http_idle_timeout_s,
                 "Seconds for which an HTTP connection is kept open between two requests; set it "
                 "longer than in a proxy in front")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--sse-keep-alive-interval", flags.sse_keep_alive_s,
                 "Seconds of silence after which the server sends a comment on an HTTP stream, so "
                 "that proxies do not close it; 0: never")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
}

void AddResumeFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--resume-time", flags.resume_time_s,
                 "Seconds for which a resumable stream without a reader continues and is kept; 0: "
                 "no stream is resumable")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  AddSize(app, "--resume-memory", flags.resume_memory_bytes,
          "Memory for the output of all resumable streams together [64MiB]");
  app.add_option("--resume-streams", flags.resume_streams,
                 "Resumable streams at the same time, at most; streams that have ended but are "
                 "still kept count too")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddNetworkFlags(CLI::App& app, ServeFlags& flags) {
  const CLI::Validator address(CheckAddress, "");
  app.add_option("--grpc", flags.grpc,
                 "Address of the gRPC API; port 0: any free port; \"off\": no gRPC")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddressOrOff, ""))
      ->capture_default_str();
  app.add_option("--metrics", flags.metrics,
                 "Address of the Prometheus page /metrics; port 0: any free port")
      ->type_name("HOST:PORT")
      ->check(address)
      ->capture_default_str();
  app.add_option("--served-name", flags.served_name,
                 "Model name that clients see (default: the model folder's name)")
      ->type_name("NAME");
}

void AddModelFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--dtype", flags.dtype,
                 "Data type of weights and KV cache in memory; auto: as in the checkpoint")
      ->type_name("TYPE")
      ->check(CLI::IsMember({"auto", "float32", "bfloat16"}))
      ->capture_default_str();
  app.add_option(
         "--load-format", flags.load_format,
         "auto: read the checkpoint's weights; dummy: random weights, only config.json is read")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str();
  app.add_option(
         "--merge-adapter", flags.merge_adapter,
         "Folder of a LoRA adapter that is merged into the weights while they are loaded: "
         "adapter_config.json, and the adapter's weights unless the checkpoint contains them")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  app.add_option("--layer-split", flags.layer_split,
                 "Number of layers of each stage, such as 3,5 (default: balanced)")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber);
  app.add_option("--chat-template", flags.chat_template,
                 "Jinja file used in place of the checkpoint's chat template")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--max-model-len", flags.max_model_len,
                 "Tokens of prompt and completion together, at most; 0: as config.json says, or "
                 "fewer if the KV memory is too small for that")
      ->type_name("N")
      ->capture_default_str();
}

void AddSwitch(CLI::App& app, const char* name, bool& is_on, const char* description) {
  app.add_option_function<std::string>(
         name, [&is_on](const std::string& text) { is_on = text == "on"; }, description)
      ->type_name("on|off")
      ->check(CLI::IsMember({"on", "off"}));
}

void AddSchedulerFlags(CLI::App& app, ServeFlags& flags) {
  AddSize(app, "--kv-memory", flags.kv_memory_bytes,
          "Memory for the KV cache of each stage, such as 512MiB or 4GB (default: each worker "
          "takes a share of its free memory)");
  app.add_option("--memory-fraction", flags.memory_fraction,
                 "Share of a GPU's memory that its worker may take for weights, scratch and KV "
                 "cache; unused on CPUs")
      ->type_name("F")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app.add_option("--max-sequences", flags.max_sequences,
                 "Sequences that run at the same time, at most (default: 256; on several GPUs "
                 "1024, or 256 per stage if that is more)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-batched-tokens", flags.max_batched_tokens,
                 "Tokens in one step, at most; up to 262144 (default: 512; on GPUs 8192)")
      ->type_name("N")
      ->check(CLI::Range(1, 262'144));
  app.add_option("--prefill-chunk", flags.prefill_chunk,
                 "Prompt tokens of one sequence in one step, at most (default: "
                 "--max-batched-tokens)")
      ->type_name("N");
  app.add_option(
         "--max-waiting", flags.max_waiting,
         "Requests that may wait in the queue; further ones are refused with RESOURCE_EXHAUSTED")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-waiting-tokens", flags.max_waiting_tokens,
                 "Prompt tokens that may wait in the queue, counted for each choice; further "
                 "requests are refused, unless the queue is empty")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-logprobs", flags.max_logprobs,
                 "Most likely tokens that a request may ask for at each position, at most")
      ->type_name("N")
      ->capture_default_str();
  AddSwitch(app, "--plan-ahead", flags.plan_ahead,
            "Plan a step before the tokens of the previous step are known; does not change the "
            "tokens [on]");
  AddSwitch(app, "--prefix-cache", flags.prefix_cache,
            "Keep computed KV blocks until their memory is needed: a prompt that shares a prefix "
            "with an earlier one is computed only from where the two differ [on]");
  app.add_option("--microbatches", flags.microbatches,
                 "Groups that the running sequences are split into for decoding, one step per "
                 "group in turn; if there are several, one more while prompts fill the steps "
                 "(default: one per stage; 1 if the stages share their cores)")
      ->type_name("N");
  app.add_option("--preempt-every", flags.preempt_every)->group("");
}

void AddStallFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--stall-limit", flags.stall_limit_s,
                 "Seconds that a stage may stay silent, or fail to finish an overdue step, before "
                 "the pipeline ends with an error that names the stage; either is logged as soon "
                 "as it is noticed")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app.add_option("--load-stall-limit", flags.load_stall_limit_s,
                 "Seconds without progress in a worker's load, for example because a file system "
                 "does not respond, after which startup fails with an error that names the file")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
}

void AddObservationFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--flight-recorder", flags.flight_recorder,
                 "Folder to which router and workers write their last steps on SIGUSR1 and on a "
                 "crash, for \"stagecoach timeline\"; \"off\": none")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--otlp-endpoint", flags.otlp_endpoint,
                 "OpenTelemetry receiver (OTLP over gRPC) to which router and workers send the "
                 "spans of traced requests (default: no traces)")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddress, ""));
  app.add_option("--trace-sample-ratio", flags.trace_sample_ratio,
                 "Share of requests to trace, 0 to 1, among those without a traceparent")
      ->type_name("F")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format, "text: plain lines; json: one object per line")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

}  // namespace

void AddSize(CLI::App& app, const std::string& name, uint64_t& bytes, const std::string& help) {
  app.add_option_function<std::string>(
         name,
         [name, &bytes](const std::string& text) {
           const absl::StatusOr<uint64_t> parsed = ParseBytes(text);
           if (!parsed.ok()) {
             throw CLI::ValidationError(name, std::string(parsed.status().message()));
           }
           bytes = *parsed;
         },
         help)
      ->type_name("SIZE");
}

void AddServeFlags(CLI::App& app, ServeFlags& flags) {
  const std::string outer_group = app.option_defaults()->get_group();
  app.option_defaults()->group("Serving");
  AddNetworkFlags(app, flags);
  AddHttpFlags(app, flags);
  AddResumeFlags(app, flags);
  AddModelFlags(app, flags);
  AddSchedulerFlags(app, flags);
  AddStallFlags(app, flags);
  AddObservationFlags(app, flags);
  app.option_defaults()->group(outer_group);
}

absl::Status CheckServeFlags(const ServeFlags& flags) {
  if (flags.grpc != "off" || flags.http != "off") return absl::OkStatus();
  return absl::InvalidArgumentError(
      "--grpc off with --http off leaves no API: give --http HOST:PORT, or leave gRPC on");
}

std::vector<std::string> ToArgs(const ServeFlags& flags) {
  const ServeFlags defaults;
  std::vector<std::string> args;
  const auto add = [&args](const char* name, const auto& value, const auto& default_value) {
    if (value != default_value) args.insert(args.end(), {name, fmt::format("{}", value)});
  };
  add("--dtype", flags.dtype, defaults.dtype);
  add("--grpc", flags.grpc, defaults.grpc);
  add("--metrics", flags.metrics, defaults.metrics);
  add("--http", flags.http, defaults.http);
  add("--api-keys", flags.api_keys, defaults.api_keys);
  add("--tls-cert", flags.tls_cert, defaults.tls_cert);
  add("--tls-key", flags.tls_key, defaults.tls_key);
  for (const std::string& origin : flags.cors) add("--cors", origin, std::string());
  add("--http-max-body", flags.http_max_body_bytes, defaults.http_max_body_bytes);
  add("--http-max-header", flags.http_max_header_bytes, defaults.http_max_header_bytes);
  add("--http-max-connections", flags.http_max_connections, defaults.http_max_connections);
  add("--http-max-client-connections", flags.http_max_client_connections,
      defaults.http_max_client_connections);
  add("--http-idle-timeout", flags.http_idle_timeout_s, defaults.http_idle_timeout_s);
  add("--http-timeout", flags.http_timeout_s, defaults.http_timeout_s);
  add("--sse-keep-alive-interval", flags.sse_keep_alive_s, defaults.sse_keep_alive_s);
  add("--resume-time", flags.resume_time_s, defaults.resume_time_s);
  add("--resume-memory", flags.resume_memory_bytes, defaults.resume_memory_bytes);
  add("--resume-streams", flags.resume_streams, defaults.resume_streams);
  add("--kv-memory", flags.kv_memory_bytes, defaults.kv_memory_bytes);
  add("--memory-fraction", flags.memory_fraction, defaults.memory_fraction);
  add("--max-model-len", flags.max_model_len, defaults.max_model_len);
  add("--max-sequences", flags.max_sequences, defaults.max_sequences);
  add("--max-batched-tokens", flags.max_batched_tokens, defaults.max_batched_tokens);
  add("--prefill-chunk", flags.prefill_chunk, defaults.prefill_chunk);
  add("--served-name", flags.served_name, defaults.served_name);
  add("--load-format", flags.load_format, defaults.load_format);
  add("--merge-adapter", flags.merge_adapter, defaults.merge_adapter);
  add("--plan-ahead", flags.plan_ahead ? "on" : "off", std::string_view("on"));
  add("--prefix-cache", flags.prefix_cache ? "on" : "off", std::string_view("on"));
  add("--microbatches", flags.microbatches, defaults.microbatches);
  add("--max-waiting", flags.max_waiting, defaults.max_waiting);
  add("--max-waiting-tokens", flags.max_waiting_tokens, defaults.max_waiting_tokens);
  add("--max-logprobs", flags.max_logprobs, defaults.max_logprobs);
  add("--chat-template", flags.chat_template, defaults.chat_template);
  add("--layer-split", fmt::format("{}", fmt::join(flags.layer_split, ",")), std::string());
  add("--stall-limit", flags.stall_limit_s, defaults.stall_limit_s);
  add("--load-stall-limit", flags.load_stall_limit_s, defaults.load_stall_limit_s);
  add("--flight-recorder", flags.flight_recorder, defaults.flight_recorder);
  add("--otlp-endpoint", flags.otlp_endpoint, defaults.otlp_endpoint);
  add("--trace-sample-ratio", flags.trace_sample_ratio, defaults.trace_sample_ratio);
  add("--log-format", flags.log_format, defaults.log_format);
  add("--preempt-every", flags.preempt_every, defaults.preempt_every);
  return args;
}

}  // namespace stagecoach
