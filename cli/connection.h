// The server that a command connects to, and its credentials.
#pragma once

#include <chrono>
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
  bool tls = false;                     // for gRPC; a URL has its own scheme
  std::string tls_ca;  // PEM file of the certificate authorities; empty: the system's
  // How long a stream whose connection broke tries to go on; 0: not at all.
  std::chrono::milliseconds resume_limit = std::chrono::seconds(30);

  bool is_url() const;
};

// Adds --server, --api-key, --tls and --tls-ca. Returns the --server option.
CLI::Option* AddConnectionFlags(CLI::App& app, Connection& connection);

}  // namespace stagecoach::cli
