// Flags of the front end: the addresses that clients reach, and what clients may take.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace stagecoach {

class FlagTable;

struct AccessFiles {
  std::string api_keys;  // empty: no key is needed
  std::string tls_cert;  // PEM; both empty: no TLS
  std::string tls_key;
  bool operator==(const AccessFiles&) const = default;
};

struct HttpLimitFlags {
  size_t max_body_bytes = 16 << 20;      // more is 413
  size_t max_header_bytes = 32 << 10;    // request line and header fields; more is 431
  size_t max_connections = 4096;         // more are 503; a connection has at most one open stream
  size_t max_client_connections = 1024;  // from one client (see ClientCounts); more are 503
  // From a request's first byte or, for the first request, from the connection's start; also for
  // the TLS handshake.
  std::chrono::seconds header_timeout{30};
  std::chrono::seconds idle_timeout{75};  // between two requests
  // A stream that is silent for this long sends a comment; 0: never. Typical proxies time out after
  // about 50 s.
  std::chrono::milliseconds keep_alive_interval{15'000};
  bool operator==(const HttpLimitFlags&) const = default;
};

// Limits of resumable streams.
struct StreamLimits {
  // How long a stream without readers is kept, whether it still runs or has ended. 0: streams
  // cannot be kept.
  std::chrono::milliseconds keep{60'000};
  size_t max_streams = 1024;
  size_t max_bytes = 64 << 20;  // output of all streams together
  bool operator==(const StreamLimits&) const = default;
};

// What is kept of finished responses of /v1/responses, for requests that continue one.
struct ResponseLimits {
  std::chrono::milliseconds keep{3'600'000};  // since the last use; 0: none is kept
  size_t max_bytes = 64 << 20;                // of all together
  bool operator==(const ResponseLimits&) const = default;
};

struct JournalFlags {
  std::string place;  // folder or URL; empty: resumable streams end with the router
  size_t max_bytes = 256 << 20;
  bool operator==(const JournalFlags&) const = default;
};

// Where KV events are published (router/kv_events).
struct KvEventFlags {
  std::string endpoint;  // of ZeroMQ, such as tcp://*:5556; empty: nothing is published
  std::string replay;    // empty: past events cannot be asked for
  std::string topic;
  bool operator==(const KvEventFlags&) const = default;
};

struct FrontEndFlags {
  std::string grpc = "127.0.0.1:9000";     // HOST:PORT; port 0: any free one; "off"
  std::string metrics = "127.0.0.1:9001";  // HOST:PORT; port 0: any free one
  std::string http = "off";                // HOST:PORT; port 0: any free one; "off"
  std::string served_name;                 // empty: the model folder's name
  AccessFiles access;
  std::vector<std::string> cors;  // origins of web pages; "*": all
  HttpLimitFlags http_limits;
  StreamLimits streams;
  ResponseLimits responses;
  JournalFlags journal;
  KvEventFlags kv_events;
  bool request_log = true;  // a line in the log for each request that has ended
  std::string control;      // path of a Unix socket; empty: replicas cannot be changed
  bool operator==(const FrontEndFlags&) const = default;
};

void DeclareFrontEndFlags(FlagTable& table, FrontEndFlags& flags);

// The addresses that nobody chose.
struct DefaultAddresses {
  bool grpc = false, http = false, metrics = false;
};

// Moves each of these addresses whose port is taken to the next free port. A port that another
// address of `flags` has is taken, too. Returns a sentence about each that was moved. An address
// stays as it is if 100 ports are taken.
std::vector<std::string> MoveTakenAddresses(FrontEndFlags& flags, const DefaultAddresses& which);

// Call it before a model is loaded. INVALID_ARGUMENT if two servers have the same address,
// UNAVAILABLE if one of them cannot listen. The message names the flag and the address.
absl::Status CheckAddresses(const FrontEndFlags& flags);

}  // namespace stagecoach
