// The flags that `stagecoach serve` and `stagecoach-router` have in common. The launcher parses
// them and hands them on to the router, so both take their names, defaults and help from here.
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
  std::string api_keys;                    // a file of keys; empty: everyone may come in
  std::string tls_cert;                    // PEM files; both or none
  std::string tls_key;
  std::vector<std::string> cors;                // origins of web pages; "*": all
  uint64_t http_max_body_bytes = 16 << 20;      // of a request
  uint64_t http_max_header_bytes = 32 << 10;    // of a request
  uint32_t http_max_connections = 4096;         // open at the same time
  uint32_t http_max_client_connections = 1024;  // of them from one address
  uint32_t http_timeout_s = 30;                 // for a client to go on sending or reading
  uint32_t http_idle_timeout_s = 75;            // between two requests of a connection
  double sse_keep_alive_s = 15;                 // of silence in a stream; 0: never
  double resume_time_s = 60;                // a resumable stream is kept unread; 0: there are none
  uint64_t resume_memory_bytes = 64 << 20;  // for what resumable streams have said
  uint32_t resume_streams = 1024;           // at the same time
  uint64_t kv_memory_bytes = 0;             // by stage; 0: each worker takes what is free
  double memory_fraction = 0.9;             // of a GPU's memory, for all that its worker takes
  uint32_t max_model_len = 0;        // tokens; 0: config.json's, lowered to what KV memory holds
  uint32_t max_sequences = 0;        // 0, as in the next: by device
  uint32_t max_batched_tokens = 0;   // by step
  uint32_t prefill_chunk = 0;        // tokens of one sequence in a step; 0: max_batched_tokens
  std::string served_name;           // empty: the model folder's name
  std::string load_format = "auto";  // auto | dummy
  std::string merge_adapter;         // folder of a LoRA adapter; empty: none
  bool plan_ahead = true;
  bool prefix_cache = true;
  uint32_t microbatches = 0;               // that compute at once; 0: one a stage
  uint32_t max_waiting = 4096;             // requests
  uint64_t max_waiting_tokens = 16 << 20;  // of their prompts
  uint32_t max_logprobs = 20;
  std::string chat_template;             // a Jinja file; empty: the checkpoint's own
  std::vector<uint32_t> layer_split;     // layers by stage; empty: balanced by the router
  uint32_t stall_limit_s = 10;           // a stage that does not get on ends the pipeline
  uint32_t load_stall_limit_s = 120;     // a load that does not get on ends the start
  std::string flight_recorder = "/tmp";  // a folder; "off"
  std::string otlp_endpoint;             // HOST:PORT; empty: no traces
  double trace_sample_ratio = 1;         // of requests whose client does not say
  std::string log_format = "text";       // text | json
  uint32_t preempt_every = 0;            // steps; 0: never. Tests force preemptions with it.

  bool operator==(const ServeFlags&) const = default;
};

// Adds the flags to `app`, which writes to `flags` when it parses; `flags` must outlive `app`.
void AddServeFlags(CLI::App& app, ServeFlags& flags);

// An option for a size as people write it, "512MiB".
void AddSize(CLI::App& app, const std::string& name, uint64_t& bytes, const std::string& help);

// INVALID_ARGUMENT for flags that leave no way in.
absl::Status CheckServeFlags(const ServeFlags& flags);

// To be asked before a model is loaded. INVALID_ARGUMENT when two servers have the same address,
// UNAVAILABLE when one of them cannot listen on its own; the message names flag and address.
absl::Status CheckAddresses(const ServeFlags& flags);

// The command-line arguments that give `flags`; what has its default value is left out.
std::vector<std::string> ToArgs(const ServeFlags& flags);

}  // namespace stagecoach
