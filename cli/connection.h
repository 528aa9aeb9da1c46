// Which server a command asks, and how it gets in.
#pragma once

#include <string>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace stagecoach::cli {

inline constexpr char kDefaultServer[] = "127.0.0.1:9000";

struct Connection {
  std::string server = kDefaultServer;  // HOST:PORT for gRPC, or a URL: http://HOST:PORT
  std::string api_key;                  // empty: none
  bool tls = false;                     // of gRPC; a URL says it itself
  std::string tls_ca;                   // PEM file of the authorities; empty: the system's

  bool is_url() const;
};

// --server, --api-key, --tls and --tls-ca. Returns the first.
CLI::Option* AddConnectionFlags(CLI::App& app, Connection& connection);

}  // namespace stagecoach::cli
