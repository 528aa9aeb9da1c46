#include "common/flags/serve_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <array>
#include <utility>

#include "common/listen_check.h"
#include "common/size.h"
#include "common/status.h"

namespace stagecoach {
namespace {

// Accepts "[::1]:9000", "0.0.0.0:0", "localhost:9000".
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
                 "Address of the OpenAI-compatible HTTP API and the web page. Port 0 picks a free "
                 "port; \"off\" disables HTTP")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddressOrOff, ""))
      ->capture_default_str();
  app.add_option("--api-keys", flags.api_keys,
                 "File with the API keys that clients must send over HTTP and gRPC, one per line: "
                 "KEY [tenant=NAME] [weight=N] [max_priority=N] [requests_per_minute=N] (default: "
                 "no key is needed)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  CLI::Option* cert =
      app.add_option(
             "--tls-cert", flags.tls_cert,
             "Certificate chain (PEM) of the server; HTTP and gRPC then use TLS. Needs --tls-key")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  CLI::Option* key =
      app.add_option("--tls-key", flags.tls_key, "Private key (PEM) of the certificate")
          ->type_name("FILE")
          ->check(CLI::ExistingFile);
  cert->needs(key);
  key->needs(cert);
  app.add_option("--cors", flags.cors,
                 "Origin of a web page that may use the HTTP API, such as "
                 "https://chat.example.org; * allows all. Can be given several times")
      ->type_name("ORIGIN")
      ->allow_extra_args(false);
  AddSize(app, "--http-max-body", flags.http_max_body_bytes,
          "Largest body of an HTTP request [16MiB]");
  AddSize(app, "--http-max-header", flags.http_max_header_bytes,
          "Largest header of an HTTP request [32KiB]");
  app.add_option("--http-max-connections", flags.http_max_connections,
                 "Maximum number of HTTP connections, and so HTTP streams, that are open at the "
                 "same time; more "
                 "are refused")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--http-max-client-connections", flags.http_max_client_connections,
                 "Maximum number of HTTP connections from one client address. A proxy in front of "
                 "the server "
                 "counts as one client: raise it there")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--http-timeout", flags.http_timeout_s,
                 "Timeout in seconds for an HTTP client to begin a request, to send its header, "
                 "and to take some of its answer. The body may take twice as long")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--http-idle-timeout", flags.http_idle_timeout_s,
                 "Seconds for which an idle HTTP connection is kept open between two requests. It "
                 "must be longer than that of a proxy in front of the server")
      ->type_name("S")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--sse-keep-alive-interval", flags.sse_keep_alive_s,
                 "Seconds of silence after which an HTTP stream sends a comment, so that proxies "
                 "do not close a waiting stream; 0 disables it")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
}

void AddResumeFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--resume-time", flags.resume_time_s,
                 "Seconds for which a resumable stream keeps running and is stored while no client "
                 "reads it; 0: streams are not resumable")
      ->type_name("S")
      ->check(CLI::Range(0.0, 86'400.0))
      ->capture_default_str();
  AddSize(app, "--resume-memory", flags.resume_memory_bytes,
          "Memory for the stored output of all resumable streams together [64MiB]");
  app.add_option("--resume-streams", flags.resume_streams,
                 "Maximum number of resumable streams at the same time, including ended ones that "
                 "are still stored")
      ->type_name("N")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
}

void AddNetworkFlags(CLI::App& app, ServeFlags& flags) {
  const CLI::Validator address(CheckAddress, "");
  app.add_option("--grpc", flags.grpc,
                 "Address of the gRPC API. Port 0 picks a free port; \"off\" disables gRPC")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddressOrOff, ""))
      ->capture_default_str();
  app.add_option("--metrics", flags.metrics,
                 "Address of the Prometheus page /metrics. Port 0 picks a free port")
      ->type_name("HOST:PORT")
      ->check(address)
      ->capture_default_str();
  app.add_option("--served-name", flags.served_name,
                 "Model name that clients see (default: the model folder's name)")
      ->type_name("NAME");
}

void AddModelFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--dtype", flags.dtype,
                 "Data type of weights and KV cache in memory; auto: as stored in the checkpoint")
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
         "Folder of a LoRA adapter that is merged into the weights while they are read. It has "
         "adapter_config.json, and the adapter's weights unless they are in the checkpoint")
      ->type_name("DIR")
      ->check(CLI::ExistingDirectory);
  app.add_option("--layer-split", flags.layer_split,
                 "Number of layers of each stage, such as 3,5 (default: balanced)")
      ->type_name("N,N...")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::PositiveNumber);
  app.add_option("--chat-template", flags.chat_template,
                 "Jinja file to use instead of the checkpoint's chat template")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  app.add_option("--max-model-len", flags.max_model_len,
                 "Longest sequence, prompt and completion together, in tokens; 0: the limit of "
                 "config.json, reduced to what the KV memory holds")
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
          "takes a share of the free memory)");
  app.add_option("--memory-fraction", flags.memory_fraction,
                 "Share of a GPU's memory that its worker may use for weights, scratch memory and "
                 "KV cache; ignored on CPUs")
      ->type_name("F")
      ->check(CLI::Range(0.01, 1.0))
      ->capture_default_str();
  app.add_option(
         "--max-sequences", flags.max_sequences,
         "Maximum number of sequences that run at the same time (default: 256; on several GPUs the "
         "larger of 1024 and 256 per stage)")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  app.add_option("--max-batched-tokens", flags.max_batched_tokens,
                 "Maximum number of tokens in one step, up to 262144 (default: 512; on GPUs 8192). "
                 "More speeds "
                 "up prefill, but other requests wait longer for their next token")
      ->type_name("N")
      ->check(CLI::Range(1, 262'144));
  app.add_option("--prefill-chunk", flags.prefill_chunk,
                 "Maximum number of prompt tokens of one sequence in one step (default: "
                 "--max-batched-tokens)")
      ->type_name("N");
  app.add_option(
         "--max-waiting", flags.max_waiting,
         "Maximum number of requests that may wait; more are refused with RESOURCE_EXHAUSTED")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--max-waiting-tokens", flags.max_waiting_tokens,
                 "Maximum number of prompt tokens of all waiting requests together; each choice of "
                 "a request "
                 "counts. More are refused, unless nothing else waits")
      ->type_name("N")
      ->capture_default_str();
  AddSize(app, "--request-memory", flags.request_memory_bytes,
          "Router memory for all requests together: bodies and messages, prompts that are "
          "tokenized, answers that wait for their client. Requests up to 64 KiB do not count. What "
          "does not fit is refused. A prompt of N bytes takes about 48 N while it is tokenized "
          "[256MiB]");
  app.add_option("--max-logprobs", flags.max_logprobs,
                 "Maximum number of most likely tokens that a request may ask for at each position")
      ->type_name("N")
      ->capture_default_str();
  AddSwitch(app, "--plan-ahead", flags.plan_ahead,
            "Plan the next step before the tokens of the last one are known; this does not change "
            "any token [on]");
  AddSwitch(app, "--prefix-cache", flags.prefix_cache,
            "Keep computed KV blocks until their memory is needed. A prompt with the same prefix "
            "as an earlier one is then computed only from where they differ [on]");
  app.add_option(
         "--microbatches", flags.microbatches,
         "Groups into which the running sequences are divided for decoding, so that all stages "
         "work at the same time. If there are several, one more is used while prompts fill the "
         "steps (default: one per stage; 1 if the stages share their cores)")
      ->type_name("N");
  app.add_option("--preempt-every", flags.preempt_every)->group("");
}

void AddStallFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--stall-limit", flags.stall_limit_s,
                 "Seconds without a sign of life from a stage, or without the end of an overdue "
                 "step, after which the pipeline ends with an error that names the stage. Stalls "
                 "are logged at once")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
  app.add_option("--load-stall-limit", flags.load_stall_limit_s,
                 "Seconds without progress of a worker's load, for example if a file system does "
                 "not answer, after which the start ends with an error that names the file")
      ->type_name("S")
      ->check(CLI::Range(1, 86'400))
      ->capture_default_str();
}

void AddObservationFlags(CLI::App& app, ServeFlags& flags) {
  app.add_option("--flight-recorder", flags.flight_recorder,
                 "Folder to which router and workers write their last steps on SIGUSR1 and when "
                 "they crash, for \"stagecoach timeline\"; \"off\" disables it")
      ->type_name("DIR")
      ->capture_default_str();
  app.add_option("--otlp-endpoint", flags.otlp_endpoint,
                 "OpenTelemetry receiver (OTLP over gRPC) for the spans of traced requests, from "
                 "router and workers (default: no traces)")
      ->type_name("HOST:PORT")
      ->check(CLI::Validator(CheckAddress, ""));
  app.add_option("--trace-sample-ratio", flags.trace_sample_ratio,
                 "Share of the requests without a traceparent that are traced")
      ->type_name("F")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format,
                 "text: lines for people; json: one JSON object per line")
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
  if (flags.grpc == "off" && flags.http == "off") {
    return absl::InvalidArgumentError(
        "--grpc off leaves no way in: give --http HOST:PORT, or leave gRPC on");
  }
  if (flags.http_max_body_bytes > flags.request_memory_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("--http-max-body {} is more than --request-memory {}, the memory for all "
                    "requests together: raise the latter",
                    flags.http_max_body_bytes, flags.request_memory_bytes));
  }
  return absl::OkStatus();
}

absl::Status CheckAddresses(const ServeFlags& flags) {
  const std::array<std::pair<const char*, const std::string*>, 3> all = {
      {{"--grpc", &flags.grpc}, {"--http", &flags.http}, {"--metrics", &flags.metrics}}};
  for (size_t i = 0; i < all.size(); ++i) {
    const auto& [flag, address] = all[i];
    if (*address == "off") continue;
    for (size_t j = 0; j < i && !address->ends_with(":0"); ++j) {
      if (*address != *all[j].second) continue;
      return absl::InvalidArgumentError(fmt::format(
          "{} and {} are both {}: give each an address of its own", all[j].first, flag, *address));
    }
    SC_RETURN_IF_ERROR(CheckCanListen(flag, *address));
  }
  return absl::OkStatus();
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
  add("--request-memory", flags.request_memory_bytes, defaults.request_memory_bytes);
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
