// What listens at an address, for words about a connection that failed.
#pragma once

#include <cstdint>
#include <string>

namespace stagecoach::cli {

enum class Spoken : uint8_t {
  kNothing,  // nothing is reached, or it says nothing within a second
  kHttp,     // HTTP/1
  kHttp2,    // as gRPC does, without TLS
  kTls,
  kOther
};

// Asks for a page and looks at how the answer begins.
Spoken Probe(const std::string& address);

}  // namespace stagecoach::cli
