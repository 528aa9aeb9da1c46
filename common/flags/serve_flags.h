// Flags that `stagecoach serve` and `stagecoach-router` share. The launcher parses them and passes
// them on to the router, so names, defaults and help texts have one source.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace CLI {
class App;
}

namespace stagecoach {

struct ServeFlags {
  std::string dtype = "auto";              // auto | float32 | bfloat16
  std::string grpc = "127.0.0.1:9000";     // HOST:PORT; port 0: any free one; "off"
  std::string metrics = "127.0.0.1:9001";  // HOST:PORT; port 0: any free one
  std::string http = "off";                // HOST:PORT; port 0: any free one; "off"
  std::string api_keys;                    // file of API keys; empty: no key is needed
  std::string tls_cert;                    // PEM files; both or none
  std::string tls_key;
  std::vector<std::string> cors;                // origins of web pages; "*": all
  uint64_t http_max_body_bytes = 16 << 20;      // per request
  uint64_t http_max_header_bytes = 32 << 10;    // per request
  uint32_t http_max_connections = 4096;         // open at the same time
  uint32_t http_max_client_connections = 1024;  // of these, per client address
  uint32_t http_timeout_s = 30;                 // for a client to continue sending or reading
  uint32_t http_idle_timeout_s = 75;            // between two requests on a connection
  double sse_keep_alive_s = 15;  // of silence, after which a stream gets a comment; 0: never
  double resume_time_s = 60;     // an unread resumable stream is kept; 0: none can be resumed
  uint64_t request_memory_bytes = 256 << 20;  // for all requests together
  uint64_t resume_memory_bytes = 64 << 20;    // for the output of all resumable streams
  uint32_t resume_streams = 1024;             // at the same time
  uint64_t kv_memory_bytes = 0;               // per stage; 0: each worker takes its free memory
  double memory_fraction = 0.9;               // share of a GPU's memory that its worker may use
  uint32_t max_model_len = 0;  // tokens; 0: from config.json, lowered to the KV memory's capacity
  uint32_t max_sequences = 0;  // 0 here and in the next field: depends on the device
  uint32_t max_batched_tokens = 0;   // per step
  uint32_t prefill_chunk = 0;        // tokens of one sequence per step; 0: max_batched_tokens
  std::string served_name;           // empty: the model folder's name
  std::string load_format = "auto";  // auto | dummy
  std::string merge_adapter;         // folder of a LoRA adapter; empty: none
  bool plan_ahead = true;
  bool prefix_cache = true;
  uint32_t microbatches = 0;               // that compute at the same time; 0: one per stage
  uint32_t max_waiting = 4096;             // requests
  uint64_t max_waiting_tokens = 16 << 20;  // of the waiting requests' prompts
  uint32_t max_logprobs = 20;
  std::string chat_template;             // a Jinja file; empty: the checkpoint's template
  std::vector<uint32_t> layer_split;     // layers per stage; empty: balanced by the router
  uint32_t stall_limit_s = 10;           // a stage without progress for this long ends the pipeline
  uint32_t load_stall_limit_s = 120;     // a load without progress for this long ends the start
  std::string flight_recorder = "/tmp";  // a folder; "off"
  std::string otlp_endpoint;             // HOST:PORT; empty: no traces
  double trace_sample_ratio = 1;    // share of requests to trace, if the client does not decide
  std::string log_format = "text";  // text | json
  uint32_t preempt_every = 0;       // steps; 0: never. Tests force preemptions with it.

  bool operator==(const ServeFlags&) const = default;
};

// Adds the flags to `app`, which writes to `flags` when it parses; `flags` must outlive `app`.
void AddServeFlags(CLI::App& app, ServeFlags& flags);

// Adds an option for a size such as "512MiB".
void AddSize(CLI::App& app, const std::string& name, uint64_t& bytes, const std::string& help);

// INVALID_ARGUMENT if the flags leave no address that clients can reach, or contradict each other.
absl::Status CheckServeFlags(const ServeFlags& flags);

// Call it before a model is loaded. INVALID_ARGUMENT if two servers have the same address,
// UNAVAILABLE if one of them cannot listen. The message names the flag and the address.
absl::Status CheckAddresses(const ServeFlags& flags);

// Returns the command-line arguments that give `flags`. Flags with their default value are left
// out.
std::vector<std::string> ToArgs(const ServeFlags& flags);

}  // namespace stagecoach
