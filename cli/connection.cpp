#include "cli/connection.h"

#include <CLI/CLI.hpp>

namespace stagecoach::cli {

bool Connection::is_url() const {
  return server.starts_with("http://") || server.starts_with("https://");
}

CLI::Option* AddConnectionFlags(CLI::App& app, Connection& connection) {
  CLI::Option* server = app.add_option("--server", connection.server,
                                       "Server to use: its gRPC address. chat and generate also "
                                       "take the URL of its HTTP API, http://HOST:PORT")
                            ->type_name("HOST:PORT|URL")
                            ->capture_default_str();
  app.add_option("--api-key", connection.api_key,
                 "API key for the server. Prefer the environment variable, because other users of "
                 "this machine can see arguments")
      ->type_name("KEY")
      ->envname("STAGECOACH_API_KEY");
  app.add_flag("--tls", connection.tls, "Use TLS for gRPC");
  app.add_option("--tls-ca", connection.tls_ca,
                 "PEM file with the authorities that may sign the server's certificate. It implies "
                 "--tls (default: the system's authorities)")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  return server;
}

}  // namespace stagecoach::cli
