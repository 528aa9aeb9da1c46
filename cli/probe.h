// Finds out which protocol an address speaks, to explain a failed connection.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach::cli {

enum class Spoken : uint8_t {
  kNothing,  // no connection, or no answer within a second
  kHttp,     // HTTP/1
  kHttp2,    // without TLS, as gRPC uses it
  kTls,
  kOther
};

// Sends an HTTP request and examines the first bytes of the answer.
Spoken Probe(const std::string& address);

}  // namespace stagecoach::cli
